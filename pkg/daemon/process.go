package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/freespace"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/lifecycle"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// Process is one service that runs alone. It is not for concurrent use.
type Process struct {
	cfg     Config
	program Program
	group   lifecycle.Group
	base    *Base
	parts   Parts
	failed  chan error
}

// New makes a process; nothing runs until Start. Lock is the data directory, held; it is nil for a program that keeps nothing and has none.
func New(cfg Config, program Program, lock *dirlock.Lock, log *slog.Logger) *Process {
	registry := telemetry.NewRegistry()
	base := BaseConfig{Token: cfg.Token, TokenFile: cfg.TokenFile, Listen: cfg.address(program), Option: listenOption, Lock: lock, Logger: log}
	if !program.Stateless {
		base.Database, base.BlobDir = filepath.Join(cfg.DataDir, program.Name+".db"), cmp.Or(cfg.BlobDir, filepath.Join(cfg.DataDir, "blobs"))
	}
	p := &Process{
		cfg: cfg, program: program, base: NewBase(base), failed: make(chan error, 1),
		parts: Parts{
			Name: program.Name, Owner: program.Name + "-" + rand.Text(), Services: []string{program.Name}, Listen: base.Listen, Connections: cfg.MaxConnections,
			Logger: log, Metrics: telemetry.NewCallMetrics(registry).Of(program.Name), Registerer: registry, Gatherer: registry,
		},
	}
	WarnInClear(base.Listen, log)
	p.group.Add(p.base.Parts()...)
	p.group.Add(
		lifecycle.Part{Name: "peers", Start: p.startPeers, Stop: p.stopPeers},
		p.service(),
		p.base.Announcement(),
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
func (p *Process) Address() string { return p.base.Listener.Addr().String() }

// listenOption is how an operator names the address of a process.
const listenOption = "listen (EVALFLEET_LISTEN)"

// LedgerTable is the table of a service's claims and results.
func LedgerTable(service string) string { return service + "_effects" }

func (p *Process) startPeers(ctx context.Context) error {
	p.parts.Peers, p.parts.Addresses = map[string]grpcclient.Conn{}, map[string]string{}
	for _, name := range p.program.Calls {
		options := grpcclient.Options{Unary: p.program.Forward}
		if p.program.Forward == nil {
			options.Token = p.base.Token
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
			parts := p.parts
			parts.Auth = auth.Logged(auth.NewTokens(p.program.Name, map[string]config.Secret{"admin": p.base.Token}), parts.Logger)
			if !p.program.Stateless {
				parts.DataDir, parts.DB, parts.Blobs = p.cfg.DataDir, p.base.DB, p.base.Blobs
				parts.Space = freespace.New(p.cfg.MinFreeBytes, p.cfg.DataDir, p.base.cfg.BlobDir)
			}
			if p.program.Effects {
				if parts.Ledger, err = effectsqlite.New(ctx, parts.DB, LedgerTable(p.program.Name)); err != nil {
					return err
				}
			}
			if server, err = p.program.Build(ctx, parts); err != nil {
				return err
			}
			served.Go(func() {
				if err := server.Serve(p.base.Listener); err != nil {
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
