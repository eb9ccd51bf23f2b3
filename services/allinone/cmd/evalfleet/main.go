// Command evalfleet runs agents and evaluations on one machine, and is a client of any evalfleet server.
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
		Env: config.Env, Signals: cli.HandOver(signals, func(os.Signal) { os.Exit(cli.ExitInterrupted) }), StdoutWidth: width(os.Stdout), StderrWidth: width(os.Stderr), StderrHeight: height(os.Stderr),
	}, os.Args[1:])
}

// width returns the columns of the terminal behind f; 0 if f is no terminal.
func width(f *os.File) func() int {
	return func() int { columns, _ := size(f); return columns }
}

// height returns the rows of the terminal behind f; 0 if f is no terminal.
func height(f *os.File) func() int {
	return func() int { _, rows := size(f); return rows }
}

// size is that of the terminal behind f; 0 where it is none.
func size(f *os.File) (columns, rows int) {
	if !term.IsTerminal(int(f.Fd())) {
		return 0, 0
	}
	if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
		return columns, rows
	}
	return 80, 24 // It does not say.
}
