package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalfleet/evalfleet/pkg/programtest"
)

// TestMain lets scripts call this test binary as `evalfleet`.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"evalfleet": func() { os.Exit(run()) }})
}

// Scripts run the command line as a person would; each file of testdata/script is one scenario.
func TestScript(t *testing.T) {
	t.Parallel()
	guest := buildGuest(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("EVALFLEET_SANDBOXD_GUEST_PATH", guest)
			e.Setenv("PATH", e.Getenv("PATH")+string(os.PathListSeparator)+os.Getenv("PATH"))
			return os.MkdirAll(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await":  await,
			"occupy": occupy,
			"match":  match,
			"active": active,
			"until":  until,
		},
	})
}

// buildGuest builds the program that runs inside sandboxes.
func buildGuest(t *testing.T) string {
	t.Helper()
	dir, err := programtest.Build("", "./services/sandboxd/cmd/guestd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "guestd")
}

// deadline bounds every wait for another process.
const deadline = time.Minute

// await DIR waits until a server has locked the data directory DIR and sets ADDR to its address.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await DIR")
	}
	path := filepath.Join(ts.MkAbs(args[0]), "lock")
	for start := time.Now(); time.Since(start) < deadline; time.Sleep(10 * time.Millisecond) {
		var holder struct{ Address string }
		if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &holder) == nil && holder.Address != "" {
			ts.Setenv("ADDR", holder.Address)
			return
		}
	}
	ts.Fatalf("no server holds %s", path)
}

// occupy listens on a free port until the script ends and sets TAKEN to its address.
func occupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: occupy")
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv("TAKEN", l.Addr().String())
}

// match NAME REGEXP sets NAME to the first group of the first match in the last command's standard output.
func match(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: match NAME REGEXP")
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	found := pattern.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) < 2 {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// active waits until a client of the data directory's server sees a running evaluation.
func active(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: active")
	}
	for start := time.Now(); time.Since(start) < deadline; time.Sleep(10 * time.Millisecond) {
		ts.Check(ts.Exec("evalfleet", "eval", "list", "--active", "--json"))
		if strings.Contains(ts.ReadFile("stdout"), "EVAL_STATE_RUNNING") {
			return
		}
	}
	ts.Fatalf("no evaluation goes on")
}

// until REGEXP PROGRAM [ARGUMENT...] runs a program until its standard output matches.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM [ARGUMENT...]")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for start := time.Now(); time.Since(start) < deadline; time.Sleep(10 * time.Millisecond) {
		if ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("%s never wrote %s; the last was:\n%s", strings.Join(args[1:], " "), args[0], ts.ReadFile("stdout"))
}
