package daemon

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// Grace is how long calls of a patient program may continue after the signal to stop, unless it is configured.
const Grace = 25 * time.Second

// Configuration is the whole configuration of a process: a pointer to a struct that pkg/config can fill. Its Validate
// should report what [Config.Alone] returns.
type Configuration interface {
	// Process returns the configuration and the program of the process, once the struct is filled.
	Process() (Config, Program)
}

// Command is how a program was called.
type Command struct {
	// Args are its arguments, without its name.
	Args []string
	// Env looks up an environment variable.
	Env func(name string) (string, bool)
	// Stderr takes its log.
	Stderr io.Writer
	// Ready, unless nil, is called with the address once calls are accepted.
	Ready func(net.Addr)
}

// Main runs a service until an interrupt or SIGTERM, and returns the exit code. A second signal ends the process at
// once. The YAML file is the one that -config or EVALFLEET_CONFIG names.
func Main(c Command, cfg Configuration) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // A second signal then has its default effect.
	switch err := Run(ctx, c, cfg); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, program := cfg.Process()
		_, _ = fmt.Fprintf(c.Stderr, "%s: %v\n", program.Name, err)
		return 1
	}
	return 0
}

// Run is Main until ctx ends.
func Run(ctx context.Context, c Command, cfg Configuration) (err error) {
	file, err := configFile(c)
	if err != nil {
		return err
	}
	asked, release := Hangups(file)
	defer release()
	if err := config.Load(ctx, cfg, file, c.Env); err != nil {
		return err
	}
	set, program := cfg.Process()
	log := telemetry.NewLogger(set.Log, c.Stderr)
	var lock *dirlock.Lock
	if !program.Stateless {
		if err := Free(ctx, set.address(program), set.DataDir, listenOption); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, dirlock.Patience)
		defer cancel()
		if lock, err = (dirlock.Dir{Path: set.DataDir, Option: "data_dir (EVALFLEET_DATA_DIR)"}).Take(within); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Release()) }()
	}
	p := New(set, program, lock, log)
	if err := p.Start(ctx); err != nil {
		return err
	}
	defer reloader(file, c, cfg, p, asked, log).Watch(ctx)()
	log.InfoContext(ctx, "serving", "service", program.Name, "address", p.Address())
	if c.Ready != nil {
		c.Ready(p.base.Listener.Addr())
	}
	select {
	case err = <-p.Failed():
	case <-ctx.Done():
		log.InfoContext(ctx, "stopping", "service", program.Name)
	}
	return errors.Join(err, p.Stop(context.WithoutCancel(ctx), cmp.Or(set.StopGrace, Grace)))
}

// reloader reloads the configuration of a process, which is read into a new value of its type.
func reloader(file string, c Command, cfg Configuration, p *Process, asked <-chan os.Signal, log *slog.Logger) *Reloader {
	_, program := cfg.Process()
	return &Reloader{
		File: file, Current: cfg, Takes: Takes(program), Asked: asked, Logger: log,
		Load: func(ctx context.Context) (any, error) {
			next := reflect.New(reflect.TypeOf(cfg).Elem()).Interface()
			return next, config.Load(ctx, next, file, c.Env)
		},
		Apply: func(ctx context.Context, next any) error {
			_, program := next.(Configuration).Process()
			return p.Reload(ctx, program)
		},
	}
}

// configFile reads the arguments.
func configFile(c Command) (string, error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(c.Stderr)
	file := flags.String("config", "", "YAML file; EVALFLEET_CONFIG when not given")
	if err := flags.Parse(c.Args); err != nil {
		return "", err
	}
	if flags.NArg() > 0 {
		return "", fmt.Errorf("unexpected argument %q; configuration comes from -config FILE and the environment", flags.Arg(0))
	}
	if *file == "" {
		*file, _ = c.Env("EVALFLEET_CONFIG")
	}
	return *file, nil
}
