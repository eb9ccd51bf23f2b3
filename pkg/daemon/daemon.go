// Package daemon runs one service as a process: it reads the configuration, finds the credential, opens the address and
// the stores, connects to the services that this one calls, serves, and shuts down gracefully on a signal.
//
// A service declares what it needs and how it is built, as a [Program]. The same program runs in a process of its own,
// through [Main], and beside others in one process, whose owner provides its [Parts].
//
//	lock → traces → address → credentials → database → blobs → replica → service → announcement        started in this order, stopped in reverse
//
// The first of them are a [Base], for one service and for many; the service is [Program.Part].
package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/freespace"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// Program is a service, configured and not yet built.
type Program struct {
	// Name is the service's name: that of its binary, its database and its ledger.
	Name string
	// Listen is the default address.
	Listen string
	// Calls are the names of the services that it calls.
	Calls []string
	// Effects reports whether it owns effects, and so has a ledger of them.
	Effects bool
	// Stateless reports whether it stores nothing, and so has neither a data directory nor stores.
	Stateless bool
	// Patient makes a stop wait for calls in flight as long as it may, since each is paid for. Other services end theirs
	// soon: while one of them stops, what it drives stands still.
	Patient bool
	// Forward makes calls to peers carry the caller's credential instead of the process's own.
	Forward bool
	// Reload applies the program's configuration to the service that runs, which an earlier program of the name built.
	// Calls in flight are not disturbed; if it fails, nothing has changed. Nil: nothing can change while the service runs.
	Reload func(ctx context.Context, running Backend) error
	// Reloads are the keys of the service's configuration that Reload takes, with all below them.
	Reloads []string
	// Build builds the service from its parts. Its background work outlives ctx, which bounds the start alone.
	Build func(ctx context.Context, parts Parts) (Server, error)
}

// Parts are the dependencies of a program. The process owns them and closes them after the service has stopped.
type Parts struct {
	// Name is the program's.
	Name string
	// Owner names this process in ledgers, from its start to its end: no earlier or later process has the name.
	Owner string
	// Alive reports whether another process of that name still runs; nil for a program that keeps nothing.
	Alive func(ctx context.Context, owner string) (bool, error)
	// Replica is this process among those of its service; nil for a program that is stateless or idle.
	Replica *replica.Process
	// Running takes the service, for [Program.Reload]; nil does not.
	Running *Running
	// Services are all services of the process.
	Services []string
	// Idle makes the service leave unfinished work alone: the process only reads.
	Idle bool
	// Listen is the configured address.
	Listen string
	// DataDir is the service's folder. It and the stores are zero for a program that keeps nothing.
	DataDir string
	// DB is the database; other services may have tables in it too.
	DB *sqlite.DB
	// Ledger stores claims and results of the program's effects; nil if it owns none.
	Ledger effect.Ledger
	// Blobs holds bodies; services share it.
	Blobs blob.Store
	// Room bounds what the calls of all services of the process hold of bodies; nil is a room for each service.
	Room *offload.Room
	// Space reports whether the disks have room for new work; nil means always.
	Space *freespace.Floor
	// Peers are connections to the services that the program calls, by name.
	Peers map[string]grpcclient.Conn
	// Addresses are those of services that run in processes of their own, host:port.
	Addresses map[string]string
	// Handlers are the HTTP handlers of the services of this process that were built before, by name.
	Handlers map[string]http.Handler
	// Servers are the gRPC servers of the services of this process that were built before, by name.
	Servers map[string]*grpcserver.Server
	// Auth knows the callers.
	Auth auth.Authenticator
	// Connections is how many connections callers may have open at once; zero is bound.Connections.
	Connections int
	// Logger logs.
	Logger *slog.Logger
	// Traces makes the spans of the process; nil makes none.
	Traces *telemetry.Traces
	// Metrics counts calls; Registerer takes more metrics, and Gatherer reads all of the process.
	Metrics    *telemetry.CallMetrics
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
}

// Server is a service that was built.
type Server interface {
	// Serve takes connections of l, once, until Stop. It then returns nil.
	Serve(l net.Listener) error
	// Stop waits for work in flight, cancels what still runs when ctx ends, and releases all resources of the service.
	// It also works without Serve.
	Stop(ctx context.Context) error
}

// Web is a service that also serves HTTP. In a process of its own it does so at the address of its RPCs; beside others,
// the owner of the process mounts the handler.
type Web interface {
	// Handler knows its callers itself. It is the same each time.
	Handler() http.Handler
}
