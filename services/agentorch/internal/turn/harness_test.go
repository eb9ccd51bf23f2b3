package turn_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/multichoice"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/prompt"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/check"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/launch"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/ownertest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type callOption = grpc.CallOption

// fleet is a database, owners of effects, and the engines that come and go over them.
type fleet struct {
	t         testing.TB
	db        *sqlite.DB
	store     journal.Store
	models    *ownertest.Models
	tools     *ownertest.Tools
	sandboxes *ownertest.Sandboxes
	agents    *agent.Registry
	scorers   *score.Registry
	cfg       turn.Config
	// wrap changes the store that the next engine gets, and wrapModels the model gateway.
	wrap       func(journal.Store) journal.Store
	wrapModels modelv1.ModelServiceClient

	engine   *turn.Engine
	launcher *launch.Launcher
	stop     func()
}

func newFleet(t testing.TB, extra ...agent.Definition) *fleet {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqlite.Options{})
	require.NoError(t, err)
	store, err := journalsqlite.Open(t.Context(), db, run.FoldRow)
	require.NoError(t, err)
	definitions := append([]agent.Definition{generate.Definition(), multichoice.Definition(), react.Definition()}, prompt.Definitions()...)
	f := &fleet{
		t: t, db: db, store: store,
		models: &ownertest.Models{}, tools: &ownertest.Tools{Tools: map[string]ownertest.Tool{}}, sandboxes: &ownertest.Sandboxes{},
		agents:  agent.NewRegistry(append(definitions, extra...)...),
		scorers: score.NewRegistry(append(builtin.Definitions(), check.Definition())...),
	}
	t.Cleanup(func() {
		f.end()
		f.models.Wait()
		f.tools.Wait()
		f.sandboxes.Wait()
		require.NoError(t, db.Close())
	})
	return f
}

// start starts an engine.
func (f *fleet) start() *fleet {
	f.t.Helper()
	store := f.store
	if f.wrap != nil {
		store = f.wrap(store)
	}
	models := modelv1.ModelServiceClient(f.models)
	if f.wrapModels != nil {
		models = f.wrapModels
	}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	if testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(testWriter{f.t}, nil))
	}
	f.engine = turn.New(f.cfg, turn.Deps{
		Store: store, Models: models, Tools: f.tools, Sandboxes: f.sandboxes, Agents: f.agents, Scorers: f.scorers, Logger: logger,
	})
	f.launcher = launch.New(launch.Deps{
		Store: store, Engine: f.engine, Models: models, Tools: f.tools, Sandboxes: f.sandboxes, Agents: f.agents, Scorers: f.scorers, Logger: logger,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	engine := f.engine
	go func() { ended <- engine.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("engine: %v", err)
		}
	})
	return f
}

func (f *fleet) end() {
	if f.stop != nil {
		f.stop()
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// spec is a run over mockllm.
func spec(steps ...*agentv1.AgentRef) *agentv1.RunSpec {
	return &agentv1.RunSpec{Steps: steps, Model: &agentv1.ModelRef{Model: "mockllm/model"}, Input: []*modelv1.ChatMessage{user("Start.")}}
}

func user(text string) *modelv1.ChatMessage {
	return &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: chat.TextContent(text)}
}

func step(name, params string, tools ...string) *agentv1.AgentRef {
	ref := &agentv1.AgentRef{Name: name, ParamsJson: params}
	for _, tool := range tools {
		ref.Tools = append(ref.Tools, &toolv1.ToolRef{Name: tool})
	}
	return ref
}

// create checks a specification and creates its run.
func (f *fleet) create(s *agentv1.RunSpec) journal.Head {
	f.t.Helper()
	plan, err := f.launcher.Check(f.t.Context(), "p", s)
	require.NoError(f.t, err)
	head, created, err := f.launcher.Start(f.t.Context(), plan, launch.Request{}, "user:test")
	require.NoError(f.t, err)
	require.True(f.t, created)
	return head
}

// until waits until the run's state is as wanted, and returns it.
func (f *fleet) until(name string, wanted func(*run.State) bool) *run.State {
	f.t.Helper()
	wake := f.store.Subscribe(name)
	defer wake.Close()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for {
		if s := f.state(name); wanted(s) {
			return s
		}
		select {
		case <-wake.C:
		case <-late.C:
			f.dump(name)
			f.t.Fatal("the run is late")
		}
	}
}

func finished(s *run.State) bool { return s.Finished }

func (f *fleet) finish(name string) *run.State {
	f.t.Helper()
	return f.until(name, finished)
}

func (f *fleet) state(name string) *run.State {
	f.t.Helper()
	s, err := run.Fold(name, nil, f.events(name))
	require.NoError(f.t, err)
	return s
}

func (f *fleet) events(name string) iter.Seq2[*agentv1.Event, error] {
	f.t.Helper()
	head, err := f.store.Open(context.Background(), name)
	require.NoError(f.t, err)
	return journal.All(context.Background(), f.store, head.Ref, 0)
}

func (f *fleet) dump(name string) {
	f.t.Helper()
	for e, err := range f.events(name) {
		text := fmt.Sprint(e)
		f.t.Log(text[:min(len(text), 400)], err)
	}
}

// texts returns what the messages say, each after the first letter of its role.
func texts(messages []*modelv1.ChatMessage) []string {
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

func call(id, function, arguments string) *toolv1.ToolCall { return chat.Call(id, function, arguments) }
