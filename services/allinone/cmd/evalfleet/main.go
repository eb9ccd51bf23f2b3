// Command evalfleet runs agents and evaluations on one machine, and is a client of any server.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/allinone/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer close(signals)
	defer signal.Stop(signals)
	return cli.Main(context.Background(), cli.Process{
		Name: os.Args[0], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env: config.Env, Signals: cli.HandOver(signals, func(os.Signal) { os.Exit(cli.ExitInterrupted) }), StdoutWidth: width(os.Stdout), StderrWidth: width(os.Stderr),
	}, os.Args[1:])
}

// width tells the columns of the terminal behind f; 0 where it is none.
func width(f *os.File) func() int {
	return func() int {
		if !term.IsTerminal(int(f.Fd())) {
			return 0
		}
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
		return 80 // It does not say.
	}
}
