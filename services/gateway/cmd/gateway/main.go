// Command gateway runs the gateway alone, in front of a fleet. It is set up by a YAML file, which -config or EVALFLEET_CONFIG names, and by the environment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/gateway"
)

// grace is how long calls may go on once the process is told to stop.
const grace = 25 * time.Second

func main() {
	file := flag.String("config", "", "YAML file; EVALFLEET_CONFIG when not given")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file, config.Env, func(net.Addr) {}); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It calls ready with its address once it does.
func run(ctx context.Context, file string, env func(string) (string, bool), ready func(net.Addr)) (err error) {
	cfg, err := load(file, env)
	if err != nil {
		return err
	}
	token, err := cfg.token()
	if err != nil {
		return err
	}
	deps := gateway.Deps{
		Auth: auth.NewTokens("", map[string]config.Secret{"admin": token}), Logger: telemetry.NewLogger(cfg.Log, os.Stderr), Gatherer: telemetry.NewRegistry(),
	}
	for _, peer := range []struct {
		address string
		conn    **grpc.ClientConn
	}{
		{cfg.Peers.Modelgw, &deps.Models}, {cfg.Peers.Toolexec, &deps.Tools}, {cfg.Peers.Sandboxd, &deps.Sandboxes}, {cfg.Peers.Agentorch, &deps.Orchestrator},
	} {
		conn, err := grpcclient.New(peer.address, grpcclient.Options{Unary: gateway.UnaryInterceptor})
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // Nothing is in flight by then.
		*peer.conn = conn
	}
	g, err := gateway.New(ctx, cfg.Gateway, deps)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Gateway.Listen)
	if err != nil {
		return err
	}
	deps.Logger.InfoContext(ctx, "serving", "address", listener.Addr().String())
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	ready(listener.Addr())
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(g.Stop(ending), <-served)
}
