// Command bench measures the platform against what it stands on, and writes docs/benchmarks.md.
//
// A figure alone says little: it is the machine's as much as the program's. So each is measured beside a baseline in
// the same run, in turns (A B A B …), and what counts is the median of the ratios of neighbours. The baselines are what
// the platform cannot do without: a fork and an exec, a synced file, a database, a bare proxy.
//
//	go run ./bench                 everything, about five minutes and never over ten; rewrites the results in docs/benchmarks.md
//	go run ./bench -only journal   one benchmark; writes nothing
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/bench/internal/role"
)

// document is where results are written, in the module's folder.
const document = "docs/benchmarks.md"

// preparing is what a whole run may take beside the measuring: building, starting, and turns that last longer than they
// should.
const preparing = 100 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == role.Child {
		return role.Main(ctx, args[1:], stdout)
	}
	list := benchmarks()
	names := make([]string, 0, len(list))
	for _, b := range list {
		names = append(names, b.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "run one benchmark and write nothing: "+strings.Join(names, ", "))
	seconds := flags.Float64("seconds", 20, "how long each benchmark measures, preparations aside")
	write := flags.Bool("write", true, "rewrite the results in "+document)
	asJSON := flags.Bool("json", false, "print JSON in place of a table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q? There are flags only; see -help", flags.Arg(0))
	}
	if *seconds <= 0 {
		return errors.New("-seconds must be above 0")
	}
	if *only != "" {
		i := slices.Index(names, *only)
		if i < 0 {
			return fmt.Errorf("there is no benchmark %s; there are %s", *only, strings.Join(names, ", "))
		}
		list, *write = list[i:i+1], false
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	s := suite{root: root, budget: time.Duration(*seconds * float64(time.Second)), progress: stderr}
	ctx, cancel := context.WithTimeout(ctx, preparing+2*s.budget*time.Duration(len(list)))
	defer cancel()
	r, err := s.run(ctx, list)
	if err != nil {
		return err
	}
	if err := show(stdout, r, *asJSON); err != nil || !*write {
		return err
	}
	return update(filepath.Join(root, document), r)
}

func show(w io.Writer, r report.Report, asJSON bool) error {
	if !asJSON {
		return report.Text(w, r)
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

func update(path string, r report.Report) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := report.Replace(old, r)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // a document of the repository, for all to read
}

// moduleRoot is the nearest folder upwards that holds a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod here or above; run it in the repository")
		}
	}
}
