// Package agentorch is the orchestrator: it runs agents and evaluations, and stores everything they did in journals.
//
//	             RunService · EvalService · AdminService
//	                  │ creates, reads, sends commands
//	┌─────────────────▼──────────────────┐
//	│ journal: fenced logs, inboxes, rows │◀── append ──┐
//	└─────────────────┬──────────────────┘              │
//	                  │ fold                            │
//	┌─────────────────▼─────┐  next?  ┌─────────────────┴─┐ calls with keys
//	│ run: state of one run │◀───────▶│ engine of runs    │───────▶ modelgw · toolexec · sandboxd
//	│ agent: pure reducers  │         └───────────────────┘
//	└───────────────────────┘
//
// The packages in internal, from the lowest layer up:
//
//   - journal stores logs of events, one per run or evaluation; journal/sqlite is the embedded store;
//   - run folds a run's log into its state; limit, history and redact are its pure helpers;
//   - agent is the port of agents and solvers, agent/… implement it; score scores samples,
//     score/exec with a program in a sandbox;
//   - task/… reads datasets, choices and templates; pycompat has Python's rules for text, patterns and numbers;
//   - workers calls workers for work other than tools; progress holds the latest notes of open effects;
//   - engine drives runs: it decides, journals, and calls the owners of effects, each effect once;
//   - retention removes deleted and expired journals and bodies;
//   - runs checks specifications, creates runs, steers and shows them; mailbox delivers commands to the
//     owners of journals;
//   - eval creates the runs of a dataset's samples; eval/live shows their present state;
//   - watch follows a journal for a watcher;
//   - server answers the RPCs;
//   - inspect/transcript turns a journal into the events of a log; inspect/evalexport writes logs in the
//     format of inspect/evallog.
package agentorch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/blob"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/multichoice"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/prompt"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval/live"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evalexport"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/retention"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs/plan"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/exec"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/server"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// Config sets the orchestrator up.
type Config struct {
	// Engine sets how runs are driven.
	Engine engine.Config `yaml:",inline"`
	// Eval sets how evaluations run.
	Eval eval.Config `yaml:"eval"`
	// Retention sets how long data of ended runs and evaluations is kept.
	Retention retention.Config `yaml:"retention"`
	// Workers sets how long workers of scorers and of agents' functions may be silent or disconnected.
	Workers worker.Config `yaml:"workers"`
}

// Deps are the dependencies of the service.
type Deps struct {
	// Models, Tools and Sandboxes are connections to modelgw, toolexec and sandboxd, whose errors are those of
	// pkg/rpcerr.
	Models, Tools, Sandboxes grpc.ClientConnInterface
	// DB holds the journals.
	DB *sqlite.DB
	// Blobs holds datasets.
	Blobs blob.Store
	// Logger logs. Prompts, outputs and commands are never logged.
	Logger *slog.Logger
	// Traces makes the spans of runs; nil makes none.
	Traces *telemetry.Traces
	// Owner names this process in the ledger of its calls to workers, from its start to its end. No earlier or later
	// process has the same name. Required.
	Owner string
	// Replica is this process among those that share the database; nil for a service whose Run is never called.
	Replica *replica.Process
	// Lack returns the reason why no new work may start, such as a nearly full disk. Nil, or an empty result, means
	// that work may start.
	Lack func() string
	// Services and DataDir are reported by GetServerInfo. Empty Services means this service alone.
	Services []string
	DataDir  string
}

// Service is the orchestrator. It is safe for concurrent use.
type Service struct {
	engine    *engine.Engine
	evals     *eval.Engine
	runs      *server.Runs
	evalRPCs  *server.Evals
	admin     *server.Admin
	workers   *workers.Workers
	keeper    *retention.Keeper
	logger    *slog.Logger
	adoptions sync.WaitGroup
}

// New returns the service. It accepts calls immediately, and creates runs once Run has begun.
func New(ctx context.Context, cfg Config, deps Deps) (*Service, error) {
	rows, err := journalsqlite.Open(ctx, deps.DB, foldRow(deps.Logger))
	if err != nil {
		return nil, fmt.Errorf("agentorch: %w", err)
	}
	store := journal.Offloading(rows, deps.Blobs)
	var (
		models    = modelv1.NewModelServiceClient(deps.Models)
		tools     = toolv1.NewToolServiceClient(deps.Tools)
		sandboxes = sandboxv1.NewSandboxServiceClient(deps.Sandboxes)
		agents    = agent.NewRegistry(append(prompt.Definitions(), generate.Definition(), multichoice.Definition(), react.Definition())...)
		judges    = eval.Judges{Scorers: score.NewRegistry(append(builtin.Definitions(), exec.Definition())...), Metrics: metric.NewRegistry()}
	)
	var alive func(ctx context.Context, owner string) (bool, error)
	if deps.Replica != nil {
		alive = deps.Replica.Alive
	}
	ledger, err := effectsqlite.New(ctx, deps.DB, "agentorch_effects")
	if err != nil {
		return nil, fmt.Errorf("agentorch: %w", err)
	}
	s := &Service{logger: deps.Logger}
	s.workers, err = workers.New(workers.Config{
		Worker: cfg.Workers, Ledger: ledger, Owner: deps.Owner, Alive: alive, Logger: deps.Logger,
		Taken: func(name string) bool { _, err := judges.Scorers.Definition(name); return err == nil },
	})
	if err != nil {
		return nil, fmt.Errorf("agentorch: %w", err)
	}
	kept := retention.Deps{Journals: store, Logger: deps.Logger, CommandText: inbox.Text}
	kept.Bodies, _ = deps.Blobs.(retention.Bodies) // A store that cannot be swept is kept whole.
	folder := ""
	if dir, ok := deps.Blobs.(interface{ Dir() string }); ok {
		folder = filepath.Clean(dir.Dir())
		kept.OwnBodies = deps.DataDir != "" && folder == filepath.Join(deps.DataDir, "blobs")
	}
	kept.Owners = map[string]retention.Owner{
		"modelgw": func(ctx context.Context, parent string, runs []string) error {
			_, err := models.ReleaseRunGenerates(ctx, &modelv1.ReleaseRunGeneratesRequest{Parent: parent, Runs: runs})
			return err
		},
		"toolexec": func(ctx context.Context, parent string, runs []string) error {
			_, err := tools.ReleaseRunTools(ctx, &toolv1.ReleaseRunToolsRequest{Parent: parent, Runs: runs})
			return err
		},
		"sandboxd": func(ctx context.Context, parent string, runs []string) error {
			_, err := sandboxes.ReleaseRunSandboxes(ctx, &sandboxv1.ReleaseRunSandboxesRequest{Parent: parent, Runs: runs})
			return err
		},
		"workers": s.workers.ReleaseRuns,
	}
	s.keeper = retention.New(cfg.Retention, kept)
	if err := s.keeper.Find(ctx); err != nil {
		return nil, fmt.Errorf("agentorch: bodies in %s: %w", folder, err)
	}
	notes := &progress.Board{}
	s.engine = engine.New(cfg.Engine, engine.Deps{ //nolint:contextcheck // It outlives the call that makes it.
		Store: store, Blobs: deps.Blobs, Replica: deps.Replica, Models: models, Tools: tools, Sandboxes: sandboxes, Agents: agents, Scorers: judges.Scorers, Workers: s.workers, Notes: notes, Logger: deps.Logger, Traces: deps.Traces, AdoptEval: s.adoptEval, Lack: deps.Lack, EvalRefs: func() []journal.Ref { return s.evals.Refs() },
		WakeEval: func(name string) { s.evals.Wake(name) },
		Away: func(service string) bool {
			return grpcclient.Away(map[string]grpc.ClientConnInterface{"modelgw": deps.Models, "toolexec": deps.Tools, "sandboxd": deps.Sandboxes}[service])
		},
	})
	// Samples wait for an unreachable service. A client that requests a run or an evaluation gets an error instead.
	of := func(service string, conn grpc.ClientConnInterface) grpc.ClientConnInterface {
		return grpcclient.WaitForReady(conn, service, grpcclient.Patience)
	}
	made := runs.New(runs.Deps{
		Store: store, Engine: s.engine, Blobs: deps.Blobs, Notes: notes, Logger: deps.Logger, Traces: deps.Traces,
		Checker: plan.Checker{
			Services: plan.Services{
				Models:    modelv1.NewModelServiceClient(of("modelgw", deps.Models)),
				Tools:     toolv1.NewToolServiceClient(of("toolexec", deps.Tools)),
				Sandboxes: sandboxv1.NewSandboxServiceClient(of("sandboxd", deps.Sandboxes)),
			},
			Agents: agents, Scorers: judges.Scorers, Workers: s.workers,
		},
		Patient: plan.Services{Models: models, Tools: tools, Sandboxes: sandboxes},
	})
	s.evals = eval.New(cfg.Eval, eval.Deps{
		Journals: store, Blobs: bodies{deps.Blobs}, Runs: made, Judges: judges, Logger: deps.Logger, Replica: s.engine.Replica(), Hold: s.engine.Hold,
	})
	exporter := evalexport.New(evalexport.Deps{Journals: store, Blobs: bodies{deps.Blobs}, Judges: judges, Samples: s.evals.Samples})
	shown := live.New(live.Deps{Engine: s.evals, Journals: store, Notes: notes, Waits: s.waits, Waiting: s.engine.Waiting})
	s.runs = server.NewRuns(server.RunsDeps{Runs: made, Store: store, Evals: shown.Listed, Notes: notes, Delete: s.keeper.Delete, Logger: deps.Logger})
	s.evalRPCs = server.NewEvals(server.EvalsDeps{
		Engine: s.evals, Journals: store, Judges: judges, Exporter: exporter, Notes: notes, Delete: s.keeper.Delete, Bodies: bodies{deps.Blobs},
		Live: shown,
	})
	services := deps.Services
	if len(services) == 0 {
		services = []string{"agentorch"}
	}
	s.admin = server.NewAdmin(server.AdminConfig{Services: services, DataDir: deps.DataDir, Replica: s.engine.Replica(), Started: time.Now()}, sandboxes, deps.Logger)
	return s, nil
}

// Register offers the service's RPCs at a server.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	agentv1.RegisterRunServiceServer(registrar, s.runs)
	agentv1.RegisterEvalServiceServer(registrar, s.evalRPCs)
	agentv1.RegisterAdminServiceServer(registrar, s.admin)
	s.workers.Register(registrar)

	// Declared, and not built yet.
	agentv1.RegisterBridgeServiceServer(registrar, agentv1.UnimplementedBridgeServiceServer{})
	agentv1.RegisterInboxServiceServer(registrar, agentv1.UnimplementedInboxServiceServer{})
	agentv1.RegisterQuotaServiceServer(registrar, agentv1.UnimplementedQuotaServiceServer{})
	agentv1.RegisterCatalogueServiceServer(registrar, agentv1.UnimplementedCatalogueServiceServer{})
	agentv1.RegisterForkServiceServer(registrar, agentv1.UnimplementedForkServiceServer{})
	agentv1.RegisterScoreServiceServer(registrar, agentv1.UnimplementedScoreServiceServer{})
	agentv1.RegisterSteeringServiceServer(registrar, agentv1.UnimplementedSteeringServiceServer{})
}

// Run takes over the runs and evals that this replica owned before, and drives them and new ones until ctx ends. It
// returns when nothing runs any more. Unfinished runs and evals stay as they are; this replica or another resumes them.
func (s *Service) Run(ctx context.Context) error {
	engine, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- s.engine.Run(engine) }()
	var hosting sync.WaitGroup
	hosted, leave := context.WithCancel(ctx) // An engine that fails ends the service.
	hosting.Go(func() { s.workers.Run(hosted) })
	hosting.Go(func() { s.keeper.Run(hosted) })
	defer hosting.Wait()
	defer leave()
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		ended <- nil
	}
	s.evals.Close() // before the engine, since evals make runs
	end()
	err = errors.Join(err, <-ended)
	s.adoptions.Wait()
	return err
}

// Close ends the service, after Run has returned. The database and the connections are the caller's to close.
func (s *Service) Close(ctx context.Context) error {
	s.evals.Close()
	return s.workers.Close(ctx)
}

// adoptEval resumes an eval that changed hands, in the background: an eval creates runs, which have to wait until all
// adoption is over.
func (s *Service) adoptEval(l journal.Listed) {
	s.evals.Adopting(l.Ref)
	s.adoptions.Go(func() { s.evals.Adopt(l.Head) })
}

// waits returns the waits of an evaluation and its runs that no journal records.
func (s *Service) waits(eval string) []*agentv1.EvalWait {
	return append(s.engine.Waits(eval), s.evals.Waits(eval)...)
}

// foldRow returns the row of any journal.
func foldRow(logger *slog.Logger) journalsqlite.Fold {
	return func(head journal.Head, events iter.Seq2[*agentv1.Event, error]) (journal.Row, error) {
		fold := run.FoldRow
		if strings.Contains(head.Name, "/evals/") {
			fold = eval.FoldRow
		}
		row, err := fold(head, events)
		if errors.Is(err, journal.ErrUnreadable) {
			logger.Error("a journal cannot be read; lists show it as failed", "journal", head.Name, "error", err)
		}
		return row, err
	}
}
