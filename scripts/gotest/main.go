// Command gotest runs `go test -json` and reads its stream for a person: a line per package, the output
// of what failed, each skipped test with its reason, and a closing line.
//
//	gotest [-no-skip] [-race "PKG …"] [-results FILE] -- [arguments of go test]
//
// It exits with 1 when a test failed, and with -no-skip when one was skipped. FILE gets a line for each test that ended, in
// the form of `go test -json`; runs with the race detector are left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/evalfleet/evalfleet/scripts/internal/testevent"
)

func main() {
	noSkip := flag.Bool("no-skip", false, "fail when a test is skipped")
	race := flag.String("race", "", "packages to test with the race detector as well (short tests only)")
	results := flag.String("results", "", "file to write the result of each test to")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	sum := newSummary(os.Stdout)
	err := runAll(ctx, sum, flag.Args(), strings.Fields(*race))
	stop()
	if *results != "" {
		err = errors.Join(err, os.WriteFile(*results, sum.ended.Bytes(), 0o644))
	}
	sum.close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	if *noSkip && len(sum.skips) > 0 {
		fmt.Fprintln(os.Stderr, "gotest: a skipped test is a failure with -no-skip")
		os.Exit(1)
	}
	if sum.failed > 0 {
		os.Exit(1)
	}
}

func runAll(ctx context.Context, sum *summary, args, racePackages []string) error {
	if err := run(ctx, sum, "", nil, args); err != nil {
		return err
	}
	if len(racePackages) == 0 {
		return nil
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		fmt.Println("race detector left out: it needs gcc")
		return nil
	}
	return run(ctx, sum, " (race)", []string{"CGO_ENABLED=1", "EVALFLEET_GOLDEN_REPORT="}, append([]string{"-race", "-short"}, racePackages...))
}

// run feeds one `go test` into sum. Failed tests are sum's to tell; the error is for a run that gave no result.
func run(ctx context.Context, sum *summary, label string, env, args []string) error {
	// Without tables for debuggers, linking takes half the time.
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-ldflags=-w"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failedBefore := sum.failed
	for e, err := range testevent.Read(out) {
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return err
		}
		sum.add(e, label)
	}
	if err := cmd.Wait(); err != nil && sum.failed == failedBefore {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
