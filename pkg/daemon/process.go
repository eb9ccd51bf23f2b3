package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/config"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/lifecycle"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// Process is one service that runs alone. It is not for concurrent use.
type Process struct {
	cfg     Config
	program Program
	group   lifecycle.Group

	token    config.Secret
	parts    Parts
	listener net.Listener
	blobs    *disk.Store
	failed   chan error
}

// New makes a process; nothing runs until Start.
func New(cfg Config, program Program, log *slog.Logger) *Process {
	registry := telemetry.NewRegistry()
	p := &Process{
		cfg: cfg, program: program, failed: make(chan error, 1),
		parts: Parts{
			Name: program.Name, Owner: program.Name + "-" + rand.Text(), Services: []string{program.Name}, Listen: cfg.address(program),
			Logger: log, Metrics: telemetry.NewCallMetrics(registry), Gatherer: registry,
		},
	}
	p.group.Add(
		lifecycle.Part{Name: "credentials", Start: p.startCredentials},
		lifecycle.Part{Name: "address", Start: p.startListener, Stop: p.stopListener},
	)
	if !program.Stateless {
		p.group.Add(
			lifecycle.Part{Name: "database", Start: p.startDatabase, Stop: p.stopDatabase},
			lifecycle.Part{Name: "blobs", Start: p.startBlobs, Stop: p.stopBlobs},
		)
	}
	p.group.Add(
		lifecycle.Part{Name: "peers", Start: p.startPeers, Stop: p.stopPeers},
		p.service(),
	)
	return p
}

// Start starts everything in order and returns when calls are taken. When a part fails, those before it are stopped.
func (p *Process) Start(ctx context.Context) error { return p.group.Start(ctx) }

// Stop stops everything in reverse, within grace.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	return p.group.Stop(ctx, grace)
}

// Failed brings the error of a service that ended by itself.
func (p *Process) Failed() <-chan error { return p.failed }

// Address is where calls are taken.
func (p *Process) Address() string { return p.listener.Addr().String() }

func (p *Process) startCredentials(context.Context) (err error) {
	hint := ""
	p.token = p.cfg.Token
	if p.token.IsZero() {
		hint = "; it is in " + p.cfg.TokenFile
		if p.token, err = auth.TokenFile(p.cfg.TokenFile); err != nil {
			return err
		}
	}
	p.parts.Auth = auth.NewTokens(hint, map[string]config.Secret{"admin": p.token})
	return nil
}

// startListener takes the address early: a port in use should be known before anything else happens.
func (p *Process) startListener(ctx context.Context) (err error) {
	p.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", p.parts.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use; stop what listens there, or choose another address with listen (EVALFLEET_LISTEN), such as 127.0.0.1:0 for any free port", p.parts.Listen)
	}
	return err
}

func (p *Process) stopListener(context.Context) error {
	if err := p.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (p *Process) startDatabase(ctx context.Context) (err error) {
	p.parts.DataDir = p.cfg.DataDir
	if err := os.MkdirAll(p.cfg.DataDir, 0o700); err != nil {
		return err
	}
	p.parts.DB, err = sqlite.Open(ctx, filepath.Join(p.cfg.DataDir, p.program.Name+".db"), sqlite.Options{})
	if err != nil || !p.program.Effects {
		return err
	}
	if p.parts.Ledger, err = effectsqlite.New(ctx, p.parts.DB, LedgerTable(p.program.Name)); err != nil {
		return errors.Join(err, p.parts.DB.Close())
	}
	return nil
}

func (p *Process) stopDatabase(context.Context) error { return p.parts.DB.Close() }

// LedgerTable is the table of a service's claims and results.
func LedgerTable(service string) string { return service + "_effects" }

func (p *Process) startBlobs(context.Context) (err error) {
	p.blobs, err = disk.Open(disk.Config{Dir: cmp.Or(p.cfg.BlobDir, filepath.Join(p.cfg.DataDir, "blobs"))})
	p.parts.Blobs = p.blobs
	return err
}

func (p *Process) stopBlobs(context.Context) error { return p.blobs.Close() }

func (p *Process) startPeers(ctx context.Context) error {
	p.parts.Peers, p.parts.Addresses = map[string]*grpc.ClientConn{}, map[string]string{}
	for _, name := range p.program.Calls {
		options := grpcclient.Options{Unary: p.program.Forward}
		if p.program.Forward == nil {
			options.Token = p.token
		}
		conn, err := grpcclient.New(p.cfg.Peers.Address(name), options)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", name, err), p.stopPeers(ctx))
		}
		p.parts.Peers[name], p.parts.Addresses[name] = conn, p.cfg.Peers.Address(name)
	}
	return nil
}

func (p *Process) stopPeers(context.Context) (err error) {
	for _, conn := range p.parts.Peers {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// service is the program itself.
func (p *Process) service() lifecycle.Part {
	var server Server
	var served sync.WaitGroup
	return lifecycle.Part{
		Name: p.program.Name,
		Start: func(ctx context.Context) (err error) {
			if server, err = p.program.Build(ctx, p.parts); err != nil {
				return err
			}
			served.Go(func() {
				if err := server.Serve(p.listener); err != nil {
					p.failed <- fmt.Errorf("%s: %w", p.program.Name, err)
				}
			})
			return nil
		},
		Stop: func(ctx context.Context) error {
			err := server.Stop(ctx)
			served.Wait()
			return err
		},
	}
}
