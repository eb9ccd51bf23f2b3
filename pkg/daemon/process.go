package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
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
	running Running
	failed  chan error
}

// New makes a process; nothing runs until Start. Lock is the held lock of the data directory; nil for a program without
// one.
func New(cfg Config, program Program, lock *dirlock.Lock, log *slog.Logger) *Process {
	registry := telemetry.NewRegistry()
	owner := program.Name + "-" + rand.Text()
	base := BaseConfig{Owner: owner, Service: program.Name, Replica: cfg.Replica, ReplicaTTL: cfg.ReplicaTTL, Token: cfg.Token, TokenFile: cfg.TokenFile, Listen: cfg.address(program), Option: listenOption, Lock: lock, Telemetry: cfg.Telemetry, Logger: log}
	if !program.Stateless {
		base.Database, base.BlobDir = filepath.Join(cfg.DataDir, program.Name+".db"), cmp.Or(cfg.BlobDir, filepath.Join(cfg.DataDir, "blobs"))
	}
	p := &Process{
		cfg: cfg, program: program, base: NewBase(base), failed: make(chan error, 1),
		parts: Parts{
			Name: program.Name, Owner: owner, Services: []string{program.Name}, Listen: base.Listen, Connections: cfg.MaxConnections,
			Logger: log, Metrics: telemetry.NewCallMetrics(registry).Of(program.Name), Registerer: registry, Gatherer: registry,
		},
	}
	p.parts.Running = &p.running
	WarnInClear(base.Listen, log)
	p.group.Add(p.base.Parts()...)
	p.group.Add(p.service(), p.base.Announcement())
	return p
}

// Start starts everything in order and returns when calls are accepted. If a part fails, the parts before it are
// stopped.
func (p *Process) Start(ctx context.Context) error { return p.group.Start(ctx) }

// Stop stops everything in reverse, within grace.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	return p.group.Stop(ctx, grace)
}

// Reload applies another configuration of the program to the service that runs.
func (p *Process) Reload(ctx context.Context, next Program) error { return p.running.Reload(ctx, next) }

// Failed brings the error of a service that ended by itself.
func (p *Process) Failed() <-chan error { return p.failed }

// Address is where calls are taken.
func (p *Process) Address() string { return p.base.Listener.Addr().String() }

// listenOption is how an operator names the address of a process.
const listenOption = "listen (EVALFLEET_LISTEN)"

// service is the program itself.
func (p *Process) service() lifecycle.Part {
	return p.program.Part(func(context.Context) (Parts, net.Listener, error) {
		parts := p.parts
		parts.Traces = p.base.Traces
		parts.Auth = auth.Logged(auth.NewTokens(p.program.Name, map[string]config.Secret{auth.Operator: p.base.Token}), parts.Logger)
		if !p.program.Stateless {
			parts.DataDir, parts.DB, parts.Blobs = p.cfg.DataDir, p.base.DB, p.base.Blobs
			parts.Replica, parts.Alive = p.base.Replica, p.base.Replica.Alive
			parts.Space = freespace.New(p.cfg.MinFreeBytes, p.cfg.DataDir, p.base.cfg.BlobDir)
		}
		peers, err := p.connect()
		parts.Peers, parts.Addresses = peers, p.addresses()
		return parts, p.base.Listener, err
	}, p.failed)
}

// connect makes connections to the services that the program calls. Those that it has made are returned with the error.
func (p *Process) connect() (map[string]grpcclient.Conn, error) {
	peers := map[string]grpcclient.Conn{}
	options := grpcclient.Options{}
	if !p.program.Forward {
		options.Token = p.base.Token
	}
	if p.base.Blobs != nil {
		options.Blobs = p.base.Blobs
	}
	for name, address := range p.addresses() {
		conn, err := grpcclient.New(address, options)
		if err != nil {
			return peers, fmt.Errorf("peer %s: %w", name, err)
		}
		peers[name] = conn
	}
	return peers, nil
}

// addresses are where the services are that the program calls.
func (p *Process) addresses() map[string]string {
	addresses := map[string]string{}
	for _, name := range p.program.Calls {
		addresses[name] = p.cfg.Peers.Address(name)
	}
	return addresses
}
