// Package toolexec is the service that knows the tools, checks the arguments of their calls and runs them.
//
// It keeps no state of a run: what a tool must remember is in the sandbox, or in the run's store, which travels with
// each request. What it does keep is the claim and the result of every call that has a key, so that a call happens once
// though its caller, the connection or this process dies.
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

// maxReissues bounds how often a call runs again because the process that ran it died. Such calls act by keyed commands
// alone, so another run costs little; but one that ends its process each time must not do so for ever.
const maxReissues = 16

// Config sets how calls are run.
type Config struct {
	// CallTimeout bounds every call whose request sets no bound of its own. Zero, the default, is none: then a tool's
	// own timeout and the life of its sandbox are what ends a call.
	CallTimeout time.Duration `yaml:"call_timeout" env:"EVALFLEET_TOOLEXEC_CALL_TIMEOUT"`
	// Workers sets how long workers of tools may be silent or away.
	Workers worker.Config `yaml:"workers"`
}

// Validate refuses a negative bound.
func (c *Config) Validate() error {
	if c.CallTimeout < 0 {
		return errors.New("call_timeout: must not be negative; leave it out for no bound")
	}
	return nil
}

// Deps are what the service works with.
type Deps struct {
	// Sandboxes is a connection to sandboxd.
	Sandboxes grpc.ClientConnInterface
	// Ledger keeps claims and results of calls; it is the service's own.
	Ledger effect.Ledger
	// Owner names this process in the ledger, from its start to its end: no earlier or later process has the name.
	Owner string
	// Alive reports whether another owner in the ledger still runs; nil where this process has the ledger to itself.
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

// Tools are the names of the built-in tools.
func Tools() []string {
	var names []string
	for _, kind := range builtIn() {
		names = append(names, kind.Name)
	}
	return names
}

// New makes the service with the built-in tools, and with those of the workers that connect. Run keeps its ledger
// small, Close ends it.
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

// Register offers the service's RPCs at a server.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	toolv1.RegisterToolServiceServer(registrar, s.tools)
	toolv1.RegisterMcpServiceServer(registrar, toolv1.UnimplementedMcpServiceServer{})
	toolv1.RegisterScopeServiceServer(registrar, toolv1.UnimplementedScopeServiceServer{})
	s.workers.Register(registrar)
}

// Run forgets old results until ctx ends. It then lets the workers go, whose connections never end by themselves, and
// returns nil. What they have in hand they offer to the next process.
func (s *Service) Run(ctx context.Context) error {
	defer s.workers.Close()
	s.effects.Sweep(ctx)
	return nil
}

// Close waits for the calls that run. When ctx ends first, the rest is cut short: calls with a key are left to their
// next caller, and their commands continue in their sandboxes. It returns an error for calls that may not be
// repeated. The service takes no calls any more.
func (s *Service) Close(ctx context.Context) error {
	s.workers.Close()
	err := s.effects.Drain(ctx)
	s.executor.Close()
	return err
}
