package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
	"github.com/evalfleet/evalfleet/pkg/lifecycle"
	"github.com/evalfleet/evalfleet/pkg/replica"
	replicasqlite "github.com/evalfleet/evalfleet/pkg/replica/sqlite"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// BaseConfig is the configuration of a process that runs services.
type BaseConfig struct {
	// Token is the admin token; zero uses the one in TokenFile, which is created if it does not exist.
	Token     config.Secret
	TokenFile string
	// Listen is the address to accept calls at. If it is in use, Fallback is used, or the start fails if Fallback is
	// empty; Option is the option by which an operator sets another address.
	Listen, Fallback, Option string
	// Database is the file of the database, BlobDir the folder of bodies; both are empty for a process without stores.
	Database, BlobDir string
	// Owner names the process from its start to its end; no earlier or later process has the name. It is empty for a
	// process that only reads the database.
	Owner string
	// Service and Replica name the replica of which the process is one life. ReplicaTTL is how long after its last
	// heartbeat it counts as dead.
	Service, Replica string
	ReplicaTTL       time.Duration
	// Lock is the data directory, held. The address is announced there; nil announces nothing.
	Lock *dirlock.Lock
	// Telemetry sets where the traces of the process go.
	Telemetry telemetry.TraceConfig
	// Logger logs what an operator should know of the stores and the traces; nil logs nothing.
	Logger *slog.Logger
}

// Base is a process without its services: the credential, the address and the stores. Each field is set by the part
// that starts it.
type Base struct {
	Token    config.Secret
	Listener net.Listener
	DB       *sqlite.DB
	Blobs    *disk.Store
	// Traces makes the spans of the process; nil makes none.
	Traces *telemetry.Traces
	// Replica is this process as other processes of the database see it; nil for a process that only reads.
	Replica *replica.Process

	cfg   BaseConfig
	beats context.CancelFunc
	beat  sync.WaitGroup
}

// NewBase makes a base; nothing runs until its parts are started.
func NewBase(cfg BaseConfig) *Base { return &Base{cfg: cfg} }

// Parts start the base, in their order, before any service.
func (b *Base) Parts() []lifecycle.Part {
	parts := []lifecycle.Part{
		collector(),
		{Name: "traces", Start: b.startTraces, Stop: func(ctx context.Context) error { return b.Traces.Stop(ctx) }},
		{Name: "address", Start: b.startListener, Stop: b.stopListener},
		{Name: "credentials", Start: b.startCredentials},
	}
	if b.cfg.Database != "" {
		parts = append(parts,
			lifecycle.Part{Name: "database", Start: b.startDatabase, Stop: func(context.Context) error { return b.DB.Close() }},
			lifecycle.Part{Name: "blobs", Start: b.startBlobs, Stop: func(context.Context) error { return b.Blobs.Close() }},
		)
	}
	if b.cfg.Database != "" && b.cfg.Owner != "" {
		parts = append(parts, lifecycle.Part{Name: "replica", Start: b.startReplica, Stop: b.stopReplica})
	}
	return parts
}

// Announcement is the part that announces the services in the data directory. It starts after them.
func (b *Base) Announcement() lifecycle.Part {
	return lifecycle.Part{
		Name:  "announcement",
		Start: func(context.Context) error { return b.Announce(true) },
		Stop:  func(context.Context) error { return b.Announce(false) },
	}
}

// Announce writes the address of the services into the data directory, or removes it, so that new clients wait.
func (b *Base) Announce(serving bool) error {
	switch {
	case b.cfg.Lock == nil:
		return nil
	case serving:
		return b.cfg.Lock.Announce(b.Listener.Addr().String())
	}
	return b.cfg.Lock.Announce("")
}

func (b *Base) startTraces(ctx context.Context) (err error) {
	b.Traces, err = telemetry.NewTraces(context.WithoutCancel(ctx), b.cfg.Telemetry, b.cfg.Service, b.cfg.Owner, b.cfg.Logger)
	return err
}

func (b *Base) startCredentials(context.Context) (err error) {
	source := "token (EVALFLEET_TOKEN)"
	if b.Token = b.cfg.Token; b.Token.IsZero() {
		source = b.cfg.TokenFile
		if b.Token, err = auth.TokenFile(b.cfg.TokenFile); err != nil {
			return err
		}
	}
	return auth.CheckToken(b.Token, source)
}

// Free fails if address is in use and dataDir does not exist yet, so that a start that must fail creates no data
// directory. Option is the option by which an operator sets another address.
func Free(ctx context.Context, address, dataDir, option string) error {
	if _, err := os.Stat(dataDir); !errors.Is(err, fs.ErrNotExist) {
		return nil // Its holder may be the better answer, and Parts reports the address.
	}
	b := NewBase(BaseConfig{Listen: address, Option: option})
	if err := b.startListener(ctx); err != nil {
		return err
	}
	return b.stopListener(ctx)
}

// startListener takes the address early: a port in use should be known before anything else happens.
func (b *Base) startListener(ctx context.Context) (err error) {
	const anyPort = "127.0.0.1:0"
	var net net.ListenConfig
	b.Listener, err = net.Listen(ctx, "tcp", b.cfg.Listen)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if b.cfg.Fallback == "" {
		return fmt.Errorf("%s is in use; stop what listens there, or choose another address with %s, such as %s for any free port", b.cfg.Listen, b.cfg.Option, anyPort)
	}
	b.Listener, err = net.Listen(ctx, "tcp", b.cfg.Fallback)
	return err
}

func (b *Base) stopListener(context.Context) error {
	if err := b.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (b *Base) startDatabase(ctx context.Context) (err error) {
	if b.cfg.Logger != nil && empty(b.cfg.Database) && holdsBodies(b.cfg.BlobDir) && filepath.Dir(b.cfg.Database) == filepath.Dir(b.cfg.BlobDir) {
		b.cfg.Logger.WarnContext(ctx, "the database is empty, but there are stored bodies beside it: if it held something before, stop the server and put a copy of the database in its place",
			"database", b.cfg.Database, "bodies", b.cfg.BlobDir)
	}
	b.DB, err = sqlite.Open(ctx, b.cfg.Database, sqlite.Options{})
	return err
}

// startReplica registers this process as alive.
func (b *Base) startReplica(ctx context.Context) error {
	table, err := replicasqlite.New(ctx, b.DB)
	if err != nil {
		return err
	}
	b.Replica, err = replica.Join(ctx, replica.Config{
		Member: replica.Member{Service: b.cfg.Service, Name: cmp.Or(b.cfg.Replica, DefaultReplica), Process: b.cfg.Owner, Address: b.Listener.Addr().String()},
		Table:  table, TTL: b.cfg.ReplicaTTL, Logger: b.cfg.Logger,
	})
	if err != nil {
		return err
	}
	ctx, b.beats = context.WithCancel(context.WithoutCancel(ctx))
	b.beat.Go(func() { b.Replica.Run(ctx) })
	return nil
}

// stopReplica registers that this process has ended.
func (b *Base) stopReplica(ctx context.Context) error {
	b.beats()
	b.beat.Wait()
	return b.Replica.Leave(ctx)
}

// empty reports whether a file is not there or has nothing in it.
func empty(path string) bool {
	info, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// holdsBodies reports whether a folder has bodies of any project.
func holdsBodies(dir string) bool {
	bodies, err := filepath.Glob(filepath.Join(dir, "[a-z]*", "[0-9a-f][0-9a-f]", "*"))
	return err == nil && len(bodies) > 0
}

func (b *Base) startBlobs(context.Context) (err error) {
	b.Blobs, err = disk.Open(disk.Config{Dir: b.cfg.BlobDir})
	return err
}
