package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/allinone"
	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
	"github.com/evalfleet/evalfleet/services/gateway"
)

func (a *app) serveCommand() *cobra.Command {
	var listen, target string
	var allowRemote bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: all services, or one of them",
		Long: `Serve runs all services in this process, with its data in one folder, and takes clients on one loopback address: gRPC (with reflection), REST under /api/v1/ and server-sent events, and the
endpoints in the shapes of model vendors under /v1/. Metrics are at /metrics. Every call needs the token in the data directory. One process serves a data directory at a time.

With --target it runs one service, which calls the others at the addresses of peers (EVALFLEET_MODELGW_ADDRESS and so on; docs/config.md). Each process then has a data directory of its own, and its
metrics at its own address; all share one --token-file and one folder of bodies (EVALFLEET_BLOB_DIR).

If there is a configuration file, the server reads it again when its content changes and on SIGHUP: accounts, prices, aliases, fallbacks and budgets change without a restart (docs/accounts.md).`,
		Example: `  evalfleet serve
  evalfleet serve --listen 127.0.0.1:0 --data-dir ./data
  curl -H "Authorization: Bearer $(cat ~/.local/share/evalfleet/token)" http://127.0.0.1:7460/api/v1/projects/default/evals
  evalfleet serve --target modelgw --data-dir ./modelgw --token-file ./token`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			asked, release := daemon.Hangups(a.configFile())
			defer release()
			load := func(ctx context.Context) (allinone.Config, error) {
				cfg, err := a.loadConfig(ctx)
				if err != nil {
					return cfg, err
				}
				cfg.Listen, cfg.Target = cmp.Or(listen, cfg.Listen), cmp.Or(target, cfg.Target)
				cfg.AllowRemote = cfg.AllowRemote || allowRemote
				if err := config.Validate(&cfg); err != nil {
					return cfg, usageError{err}
				}
				return cfg, nil
			}
			cfg, err := load(c.Context())
			if err != nil {
				return err
			}
			return a.serve(c.Context(), cfg, load, asked)
		},
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", "", "address to take clients at (default 127.0.0.1:7460; with --target, docs/config.md)")
	f.BoolVar(&allowRemote, "allow-remote", false, "let --listen be an address that others can reach")
	f.StringVar(&target, "target", "", "run one service: "+strings.Join(allinone.Targets, ", "))
	f.BoolVar(&a.allowUnisolated, "allow-unisolated", false, "let tasks ask for sandboxes that lack a part of their isolation on this machine")
	_ = c.RegisterFlagCompletionFunc("target", cobra.FixedCompletions(allinone.Targets, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// server is what serve runs: all services, or one.
type server interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context, grace time.Duration) error
	Failed() <-chan error
	Address() string
}

// serverFor makes the server that cfg asks for. One service alone has its data in the data directory, under names of
// its own.
func (a *app) serverFor(cfg allinone.Config, dir datadir.Dir, lock *dirlock.Lock) server {
	log := telemetry.NewLogger(cfg.Log, a.Stderr)
	program, ok := cfg.Program(cfg.Target)
	if !ok {
		return allinone.New(cfg, allinone.Deps{Dir: dir, Lock: lock, Logger: log})
	}
	cfg.DataDir = dir.Path()
	cfg.TokenFile = cmp.Or(cfg.TokenFile, dir.Token())
	return daemon.New(cfg.Config, program, lock, log)
}

func (a *app) serve(ctx context.Context, cfg allinone.Config, load func(context.Context) (allinone.Config, error), asked <-chan os.Signal) (err error) {
	address := gateway.DefaultListen
	if program, alone := cfg.Program(cfg.Target); alone {
		address = program.Listen
	}
	if err := daemon.Free(ctx, cmp.Or(cfg.Listen, address), cfg.DataDir, "--listen"); err != nil {
		return err
	}
	dir, err := datadir.Open(cfg.DataDir)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, dirlock.Patience)
	defer cancel()
	lock, err := dir.Lock().Take(within)
	if _, held := errors.AsType[*dirlock.HeldError](err); held {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	served := a.serverFor(cfg, dir, lock)
	unwatch := func() {}
	defer func() { unwatch() }()
	return a.serveUntilInterrupt(ctx, served, graceOf(served, cfg), func(s server) error {
		reloader := a.reloader(s, cfg, load)
		reloader.Asked = asked
		unwatch = reloader.Watch(ctx)
		return a.sayServing(s, cfg, dir)
	})
}

// graceOf is how long calls in flight may continue when s stops.
func graceOf(s server, cfg allinone.Config) time.Duration {
	if _, alone := s.(*daemon.Process); alone {
		return cmp.Or(cfg.StopGrace, daemon.Grace)
	}
	return cmp.Or(cfg.StopGrace, stopGrace)
}

// reloader reloads the configuration of a server, which load reads.
func (a *app) reloader(s server, cfg allinone.Config, load func(context.Context) (allinone.Config, error)) *daemon.Reloader {
	return &daemon.Reloader{
		File: a.configFile(), Current: &cfg, Takes: cfg.Reloads(), Logger: telemetry.NewLogger(cfg.Log, a.Stderr),
		Load: func(ctx context.Context) (any, error) {
			next, err := load(ctx)
			return &next, err
		},
		Apply: func(ctx context.Context, loaded any) error {
			next := loaded.(*allinone.Config)
			if alone, ok := s.(*daemon.Process); ok {
				program, _ := next.Program(cfg.Target)
				return alone.Reload(ctx, program)
			}
			return s.(*allinone.Server).Reload(ctx, *next)
		},
	}
}

// serveUntilInterrupt runs a server until an interrupt, also one that comes while it starts. Started is called once it
// serves. Calls in flight then have grace to end.
func (a *app) serveUntilInterrupt(ctx context.Context, s server, grace time.Duration, started func(server) error) error {
	running, stop := a.untilInterrupt(ctx)
	defer func() { stop() }()
	err := s.Start(running)
	if err != nil {
		if interrupted(running) {
			return errInterrupted
		}
		return err
	}
	err = started(s)
	if err == nil {
		select {
		case err = <-s.Failed():
		case <-running.Done():
		}
	}
	stop()
	a.note("stopping; interrupt again to stop at once")
	running, stop = a.untilInterrupt(ctx)
	return errors.Join(err, s.Stop(running, grace))
}

// sayServing writes where a server serves.
func (a *app) sayServing(s server, cfg allinone.Config, dir datadir.Dir) error {
	if a.json {
		b, err := json.Marshal(map[string]string{"address": s.Address(), "dataDir": dir.Path()})
		if err != nil {
			return err
		}
		a.print("%s", b)
	}
	token := "the token is " + cmp.Or(cfg.TokenFile, dir.Token())
	if !cfg.Token.IsZero() {
		token = "the token is that of EVALFLEET_TOKEN or the configuration"
	}
	a.note("serving at %s; data is in %s, %s; interrupt to stop", s.Address(), dir.Path(), token)
	return nil
}
