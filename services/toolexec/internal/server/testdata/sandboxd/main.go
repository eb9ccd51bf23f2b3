// Command sandboxd is the service sandboxd for tests of toolexec, in a process of its own. It keeps all in the folder
// that its argument names, and serves there at the socket `sock` until it is told to stop.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/sandboxd"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], log); err != nil {
		log.Error("sandboxd ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, log *slog.Logger) (err error) {
	db, err := sqlite.Open(ctx, filepath.Join(dir, "sandboxd.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ledger, err := effectsqlite.New(ctx, db, "sandboxd")
	if err != nil {
		return err
	}
	cfg := sandboxd.Config{Dir: dir, SearchPath: os.Getenv("PATH")}
	cfg.AllowUnisolated = true
	service, err := sandboxd.New(cfg, sandboxd.Deps{DB: db, Ledger: ledger, Owner: rand.Text(), Logger: log})
	if err != nil {
		return err
	}
	server, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: authtest.Allow{Name: "test"}})
	if err != nil {
		return err
	}
	service.Register(server)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(dir, "sock"))
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	background.Go(func() { _ = service.Run(ctx) })
	background.Go(func() {
		<-ctx.Done()
		server.Stop()
	})
	err = server.Serve(listener)
	background.Wait()
	return errors.Join(err, service.Close(context.WithoutCancel(ctx)))
}
