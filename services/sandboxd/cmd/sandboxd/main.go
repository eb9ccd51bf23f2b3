// Command sandboxd runs the service sandboxd alone, for a fleet. It is set up by a YAML file, which -config or EVALFLEET_CONFIG names, and by the environment.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/sandboxd"
)

// grace is how long calls may go on once the process is told to stop.
const grace = 25 * time.Second

func main() {
	file := flag.String("config", "", "YAML file; EVALFLEET_CONFIG when not given")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file, config.Env, func(net.Addr) {}); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "sandboxd:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends; the sandboxes live on. It calls ready with its address once it serves.
func run(ctx context.Context, file string, env func(string) (string, bool), ready func(net.Addr)) (err error) {
	cfg, err := load(file, env)
	if err != nil {
		return err
	}
	token, err := auth.TokenFile(cfg.TokenFile)
	if err != nil {
		return err
	}
	db, err := sqlite.Open(ctx, filepath.Join(cfg.DataDir, "sandboxd.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ledger, err := effectsqlite.New(ctx, db, "sandboxd")
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(cfg.Log, os.Stderr)
	//nolint:contextcheck // A start is as short as the disk allows.
	service, err := sandboxd.New(cfg.Sandboxd, sandboxd.Deps{DB: db, Ledger: ledger, Owner: "sandboxd-" + rand.Text(), Logger: log})
	if err != nil {
		return err
	}
	tokens := auth.NewTokens("; it is in "+cfg.TokenFile, map[string]config.Secret{"admin": token})
	server, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: tokens})
	if err != nil {
		return err
	}
	service.Register(server)
	running, end := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { _ = service.Run(running) })
	defer func() { end(); background.Wait() }()

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "serving", "address", listener.Addr().String())
	server.SetReady(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready(listener.Addr())
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	server.Drain(ending)
	return errors.Join(err, service.Close(ending))
}
