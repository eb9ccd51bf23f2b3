// Command modelgw runs the service modelgw alone, for a fleet. It is set up by a YAML file, which -config or EVALFLEET_CONFIG names, and by the environment.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/blobserver"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/config"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

const (
	// grace is how long calls may go on once the process is told to stop.
	grace = 25 * time.Second
	// maxBlobBytes bounds a body that is read whole.
	maxBlobBytes = 64 << 20
)

func main() {
	file := flag.String("config", "", "YAML file; EVALFLEET_CONFIG when not given")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file, config.Env, func(net.Addr) {}); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "modelgw:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It calls ready with its address once it does.
func run(ctx context.Context, file string, env func(string) (string, bool), ready func(net.Addr)) (err error) {
	cfg, err := load(file, env)
	if err != nil {
		return err
	}
	token, err := auth.TokenFile(cfg.TokenFile)
	if err != nil {
		return err
	}
	db, err := sqlite.Open(ctx, filepath.Join(cfg.DataDir, "modelgw.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ledger, err := effectsqlite.New(ctx, db, "modelgw")
	if err != nil {
		return err
	}
	blobs, err := disk.Open(disk.Config{Dir: filepath.Join(cfg.DataDir, "blobs")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, blobs.Close()) }()

	log := telemetry.NewLogger(cfg.Log, os.Stderr)
	service, err := modelgw.New(cfg.Modelgw, modelgw.Deps{
		Ledger: ledger, Owner: "modelgw-" + rand.Text(), Blobs: reader(blobs), Logger: log,
	})
	if err != nil {
		return err
	}
	tokens := auth.NewTokens("; it is in "+cfg.TokenFile, map[string]config.Secret{"admin": token})
	server, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: tokens})
	if err != nil {
		return err
	}
	service.Register(server)
	blobserver.New(blobs).Register(server)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return errors.Join(err, service.Close(ctx))
	}
	log.InfoContext(ctx, "serving", "address", listener.Addr().String())
	running, end := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { _ = service.Run(running) })
	defer func() { end(); background.Wait() }()
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

// reader reads bodies whole.
func reader(blobs blob.Store) func(ctx context.Context, project, hash string) ([]byte, error) {
	return func(ctx context.Context, project, hash string) ([]byte, error) {
		body, _, err := blobs.Get(ctx, project, hash, 0, maxBlobBytes)
		if err != nil {
			return nil, err
		}
		whole, err := io.ReadAll(body)
		return whole, errors.Join(err, body.Close())
	}
}
