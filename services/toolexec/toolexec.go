// Package toolexec is the service that has the tools, checks the arguments of their calls and runs them.
//
// It keeps no state of a run: a tool's lasting state is in the sandbox, or in the run's store, which is part of each
// request. It stores the claim and the result of every call that has a key, so that a call happens once even if its
// caller, the connection or this process dies.
package toolexec

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/bash"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/python"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/texteditor"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/think"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/execute"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/server"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/workertool"
)

// maxReissues bounds how often a call is retried because the process that ran it died. Such calls act only by commands
// with keys, so a retry costs little; but a call that crashes its process each time must not be retried without end.
const maxReissues = 16

// Config configures how calls are run.
type Config struct {
	// CallTimeout bounds every call whose request sets no bound of its own. Zero, the default, means no bound: then
	// only a tool's own timeout and the life of its sandbox end a call.
	CallTimeout time.Duration `yaml:"call_timeout" env:"EVALFLEET_TOOLEXEC_CALL_TIMEOUT"`
	// Workers bounds how long workers of tools may be silent or disconnected.
	Workers worker.Config `yaml:"workers"`
}

// Validate rejects a negative bound.
func (c *Config) Validate() error {
	if c.CallTimeout < 0 {
		return errors.New("call_timeout: must not be negative; leave it out for no bound")
	}
	return nil
}

// Deps are the service's dependencies.
type Deps struct {
	// Sandboxes is a connection to sandboxd.
	Sandboxes grpc.ClientConnInterface
	// Ledger stores claims and results of calls; no other service uses it.
	Ledger effect.Ledger
	// Owner identifies this process in the ledger. It is unique among all earlier and later processes.
	Owner string
	// Alive reports whether another owner in the ledger still runs; nil if no other process uses the ledger.
	Alive func(ctx context.Context, owner string) (bool, error)
	// Logger logs. Arguments and outputs of tools are never logged.
	Logger *slog.Logger
}

// Service is toolexec. It is safe for concurrent use.
type Service struct {
	tools    *server.Tools
	effects  *effectrpc.Owner
	executor *execute.Executor
	workers  *worker.Host
	log      *slog.Logger
}

func builtIn() []tool.Kind {
	return []tool.Kind{bash.Kind(), python.Kind(), texteditor.Kind(), think.Kind()}
}

// Tools returns the names of the built-in tools.
func Tools() []string {
	var names []string
	for _, kind := range builtIn() {
		names = append(names, kind.Name)
	}
	return names
}

// New returns the service with the built-in tools and the tools of connected workers. Run deletes old results from its
// ledger; Close ends it.
func New(cfg Config, deps Deps) (*Service, error) {
	registry := &tool.Registry{}
	for _, kind := range builtIn() {
		if err := registry.Register(kind); err != nil {
			return nil, err
		}
	}
	workers := worker.New(cfg.Workers, worker.Deps{Kinds: []worker.Kind{workertool.Offers(registry)}, Ledger: deps.Ledger, Logger: deps.Logger})
	registry.Workers = workertool.New(workers)
	effects, err := effectrpc.New(effectrpc.Config{
		Service:     "toolexec",
		Ledger:      deps.Ledger,
		Owner:       deps.Owner,
		Alive:       deps.Alive,
		MaxReissues: maxReissues,
		Logger:      deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	executor := execute.New(execute.Config{
		Effects:     effects,
		Sandboxes:   sandboxv1.NewSandboxServiceClient(deps.Sandboxes),
		CallTimeout: cfg.CallTimeout,
		Kept:        workers.Accept,
		Logger:      deps.Logger,
	})
	return &Service{tools: server.NewTools(registry, executor, workers.Served()), effects: effects, executor: executor, workers: workers, log: deps.Logger}, nil
}

// Register registers the service's RPCs at a server.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	toolv1.RegisterToolServiceServer(registrar, s.tools)
	toolv1.RegisterMcpServiceServer(registrar, toolv1.UnimplementedMcpServiceServer{})
	toolv1.RegisterScopeServiceServer(registrar, toolv1.UnimplementedScopeServiceServer{})
	s.workers.Register(registrar)
}

// Run deletes old results until ctx ends. It then closes the connections of workers, which never end by themselves, and
// returns nil. Workers offer their calls in flight to the next process.
func (s *Service) Run(ctx context.Context) error {
	defer s.workers.Close()
	s.effects.Sweep(ctx)
	return nil
}

// Close waits for the calls in flight. If ctx ends first, the rest is cut short: calls with a key are left to their
// next caller, and their commands continue in their sandboxes. It returns an error for calls that may not be repeated.
// The service accepts no further calls.
func (s *Service) Close(ctx context.Context) error {
	s.workers.Close()
	err := s.effects.Drain(ctx)
	s.executor.Close()
	return err
}
