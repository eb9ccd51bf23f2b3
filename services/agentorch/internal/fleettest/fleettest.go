// Package fleettest runs the orchestrator's engine for tests: a database, scripted owners of effects that outlive
// engines, and engines that come and go over them.
package fleettest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/replica/memory"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs/plan"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// Parts are the adapters that a fleet works with.
type Parts struct {
	// Open opens the journals in a database.
	Open func(context.Context, *sqlite.DB) (journal.Store, error)
	// Agents and Scorers are those that runs may name.
	Agents  []agent.Definition
	Scorers []score.Definition
	// VFS is the virtual file system of the database; empty is the usual disk.
	VFS string
	// Dir is its folder; empty is one of the test's own.
	Dir string
}

// Fleet is a database, owners, and the engine of the moment. Change its fields between End and Start.
type Fleet struct {
	T         testing.TB
	DB        *sqlite.DB
	Store     journal.Store
	Models    *servicetest.Models
	Tools     *servicetest.Tools
	Sandboxes *servicetest.Sandboxes
	Agents    *agent.Registry
	Scorers   *score.Registry
	// Workers hosts workers of scorers and of agents' functions; nil if there are none.
	Workers *workers.Workers
	Notes   *progress.Board
	Config  engine.Config
	// Replica is the configuration with which the next engine joins: by default `local` in a table of the fleet's own.
	Replica replica.Config
	// Wrap changes the store that the next engine gets, and WrapModels replaces its model gateway.
	Wrap       func(journal.Store) journal.Store
	WrapModels modelv1.ModelServiceClient
	// Adjust changes the dependencies of the next engine; nil changes nothing.
	Adjust func(*engine.Deps)
	// Lack returns the reason why no new work may start.
	Lack func() string
	// Logger is that of engines; nil logs to the test if it is verbose.
	Logger *slog.Logger

	Engine *engine.Engine
	Runs   *runs.Runs
	// Stop ends the engine that was started last.
	Stop func()

	blobs *disk.Store
}

// New returns a fleet without an engine.
func New(t testing.TB, parts Parts) *Fleet {
	t.Helper()
	if parts.Dir == "" {
		parts.Dir = t.TempDir()
	}
	db, err := sqlite.Open(context.Background(), filepath.Join(parts.Dir, "test.db"), sqlite.Options{VFS: parts.VFS})
	require.NoError(t, err)
	store, err := parts.Open(context.Background(), db)
	require.NoError(t, err)
	require.NoError(t, db.Migrate(context.Background(), "fleettest", []string{`CREATE TABLE beats (n INTEGER); INSERT INTO beats (n) VALUES (0);`}))
	blobs, err := disk.Open(disk.Config{Dir: filepath.Join(parts.Dir, "blobs")})
	require.NoError(t, err)
	f := &Fleet{
		T: t, DB: db, Store: journal.Offloading(store, blobs), blobs: blobs,
		Models: &servicetest.Models{}, Tools: &servicetest.Tools{Tools: map[string]servicetest.Tool{}}, Sandboxes: &servicetest.Sandboxes{}, Notes: &progress.Board{},
		Agents: agent.NewRegistry(parts.Agents...), Scorers: score.NewRegistry(parts.Scorers...),
		Replica: replica.Config{Table: &table{db: db}, Member: replica.Member{Service: "agentorch", Name: "local"}},
	}
	t.Cleanup(func() {
		f.End()
		waittest.Return(t, f.Models.Wait, "the model calls to end")
		waittest.Return(t, f.Tools.Wait, "the tool calls to end")
		waittest.Return(t, f.Sandboxes.Wait, "the calls to sandboxes to end")
		require.NoError(t, errors.Join(db.Close(), blobs.Close()))
	})
	return f
}

// table is the table of replicas: its clock is that of the test. Its beats are writes of the database, and fail if
// those do.
type table struct {
	memory.Table

	db *sqlite.DB
}

func (t *table) Beat(ctx context.Context, process string) error {
	err := t.db.Write(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`UPDATE beats SET n = n + 1`)
		return err
	})
	if err != nil {
		return err
	}
	return t.Table.Beat(ctx, process)
}

// Start starts an engine.
func (f *Fleet) Start() *Fleet {
	f.T.Helper()
	store := f.Store
	if f.Wrap != nil {
		store = f.Wrap(store)
	}
	models := modelv1.ModelServiceClient(f.Models)
	if f.WrapModels != nil {
		models = f.WrapModels
	}
	logger := cmp.Or(f.Logger, slog.New(slog.DiscardHandler))
	if f.Logger == nil && testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(logWriter{f.T}, nil))
	}
	joining := f.Replica
	joining.Process, joining.Logger = rand.Text(), logger
	process, err := replica.Join(context.Background(), joining)
	require.NoError(f.T, err)
	engineDeps := engine.Deps{
		Store: store, Blobs: f.blobs, Replica: process, Models: models, Tools: f.Tools, Sandboxes: f.Sandboxes, Agents: f.Agents, Scorers: f.Scorers,
		Notes: f.Notes, Lack: f.Lack, Logger: logger,
	}
	checker := plan.Checker{Services: plan.Services{Models: models, Tools: f.Tools, Sandboxes: f.Sandboxes}, Agents: f.Agents, Scorers: f.Scorers}
	if f.Workers != nil {
		engineDeps.Workers, checker.Workers = f.Workers, f.Workers
	}
	if f.Adjust != nil {
		f.Adjust(&engineDeps)
	}
	f.Engine = engine.New(f.Config, engineDeps)
	f.Runs = runs.New(runs.Deps{Store: store, Engine: f.Engine, Blobs: f.blobs, Checker: checker, Patient: checker.Services, Notes: f.Notes, Logger: logger})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	engine := f.Engine
	go func() { ended <- engine.Run(ctx) }()
	f.Stop = sync.OnceFunc(func() {
		cancel()
		if err := waittest.For(f.T, ended, "the engine to end"); err != nil {
			f.T.Errorf("engine: %v", err)
		}
		require.NoError(f.T, process.Leave(context.Background()))
	})
	return f
}

// End ends the engine, like a process that is asked to stop.
func (f *Fleet) End() {
	if f.Stop != nil {
		f.Stop()
	}
}

type logWriter struct{ t testing.TB }

func (w logWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// Create checks a specification and creates its run in the project p.
func (f *Fleet) Create(s *agentv1.RunSpec) journal.Head {
	f.T.Helper()
	checked, err := f.Runs.Check(context.Background(), "p", s)
	require.NoError(f.T, err)
	head, err := f.Runs.Start(context.Background(), checked, runs.Key{}, "user:test")
	require.NoError(f.T, err)
	return head
}

// Until waits until the run's state is as wanted, and returns it.
func (f *Fleet) Until(name string, wanted func(*run.State) bool) *run.State {
	f.T.Helper()
	wake := f.Store.Subscribe(name)
	defer wake.Close()
	late := time.NewTimer(waittest.Bound)
	defer late.Stop()
	for {
		if s := f.State(name); wanted(s) {
			return s
		}
		select {
		case <-wake.C:
		case <-late.C:
			f.Dump(name)
			f.T.Fatal("the run is late")
		}
	}
}

// Finish waits until the run has ended.
func (f *Fleet) Finish(name string) *run.State {
	f.T.Helper()
	return f.Until(name, func(s *run.State) bool { return s.Finished })
}

// State folds the run's journal.
func (f *Fleet) State(name string) *run.State {
	f.T.Helper()
	s, err := run.Fold(name, nil, f.Events(name))
	require.NoError(f.T, err)
	return s
}

// Events reads the run's journal.
func (f *Fleet) Events(name string) iter.Seq2[*agentv1.Event, error] {
	f.T.Helper()
	head, err := f.Store.Open(context.Background(), name)
	require.NoError(f.T, err)
	return journal.All(context.Background(), f.Store, head.Ref, 0)
}

// Dump logs the run's journal.
func (f *Fleet) Dump(name string) {
	f.T.Helper()
	for e, err := range f.Events(name) {
		text := fmt.Sprint(e)
		f.T.Log(text[:min(len(text), 400)], err)
	}
}

// Spec is a run over mockllm that begins with a user message "Start.".
func Spec(steps ...*agentv1.AgentRef) *agentv1.RunSpec {
	return &agentv1.RunSpec{Steps: steps, Model: &agentv1.ModelRef{Model: "mockllm/model"}, Input: []*modelv1.ChatMessage{User("Start.")}}
}

// User is a user message without an id.
func User(text string) *modelv1.ChatMessage {
	return &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: chat.TextContent(text)}
}

// Step is a step with parameters and tools.
func Step(name, params string, tools ...string) *agentv1.AgentRef {
	ref := &agentv1.AgentRef{Name: name, ParamsJson: params}
	for _, tool := range tools {
		ref.Tools = append(ref.Tools, &toolv1.ToolRef{Name: tool})
	}
	return ref
}

// Texts returns the texts of messages, each after the first letter of its role and before the kind of its error.
func Texts(messages []*modelv1.ChatMessage) []string {
	var all []string
	for _, m := range messages {
		text := strings.ToUpper(chat.RoleName(m.GetRole())[:1]) + ":" + chat.Text(m)
		if m.GetError() != nil {
			text += "!" + chat.ToolErrorName(m.GetError().GetType())
		}
		all = append(all, text)
	}
	return all
}
