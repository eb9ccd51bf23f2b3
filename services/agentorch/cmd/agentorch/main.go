// Command agentorch runs the service agentorch alone, for a fleet. It is set up by a YAML file, which -config or EVALFLEET_CONFIG names, and by the environment.
package main

import (
	"context"
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

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob/blobserver"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/agentorch"
)

// grace is how long calls may go on once the process is told to stop.
const grace = 25 * time.Second

func main() {
	file := flag.String("config", "", "YAML file; EVALFLEET_CONFIG when not given")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file, config.Env, func(net.Addr) {}); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "agentorch:", err)
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
	var closers []io.Closer
	defer func() {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i].Close())
		}
	}()
	db, err := sqlite.Open(ctx, filepath.Join(cfg.DataDir, "agentorch.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	closers = append(closers, db)
	blobs, err := disk.Open(disk.Config{Dir: filepath.Join(cfg.DataDir, "blobs")})
	if err != nil {
		return err
	}
	closers = append(closers, blobs)
	conns := map[string]*grpc.ClientConn{}
	for _, address := range []string{cfg.Modelgw, cfg.Toolexec, cfg.Sandboxd} {
		conn, err := grpcclient.New(address, grpcclient.Options{Token: token})
		if err != nil {
			return err
		}
		conns[address] = conn
		closers = append(closers, conn)
	}
	log := telemetry.NewLogger(cfg.Log, os.Stderr)
	service, err := agentorch.New(ctx, cfg.Agentorch, agentorch.Deps{
		Models: conns[cfg.Modelgw], Tools: conns[cfg.Toolexec], Sandboxes: conns[cfg.Sandboxd],
		DB: db, Blobs: blobs, Logger: log, Replica: cfg.Replica, DataDir: cfg.DataDir,
	})
	if err != nil {
		return err
	}
	server, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: auth.NewTokens("; it is in "+cfg.TokenFile, map[string]config.Secret{"admin": token})})
	if err != nil {
		return err
	}
	service.Register(server)
	blobserver.New(blobs).Register(server)
	return serve(ctx, cfg.Listen, service, server, ready)
}

// serve takes calls and drives runs until ctx ends or one of the two fails.
func serve(ctx context.Context, address string, service *agentorch.Service, server *grpcserver.Server, ready func(net.Addr)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 2)
	var parts sync.WaitGroup
	parts.Go(func() { ended <- service.Run(running) })
	parts.Go(func() { ended <- server.Serve(listener) })
	server.SetReady(true)
	ready(listener.Addr())
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	end()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	server.Drain(ending)
	parts.Wait()
	return errors.Join(err, service.Close(ending))
}
