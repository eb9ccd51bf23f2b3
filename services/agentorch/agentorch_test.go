package agentorch_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/replica/memory"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const project = "projects/default"

// Bounds of what is polled for.
const (
	patience = time.Minute
	pause    = 20 * time.Millisecond
)

// models answers "42" as soon as it may.
type models struct {
	modelv1.UnimplementedModelServiceServer

	asked chan string
	may   chan struct{}
}

func (m *models) Generate(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.GenerateResponse, error) {
	if r.GetValidateOnly() {
		return &modelv1.GenerateResponse{}, nil
	}
	m.asked <- r.GetRequestId()
	select {
	case <-m.may:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	message := chat.Assistant("42")
	return &modelv1.GenerateResponse{Output: chat.MessageOutput(r.GetModel(), message, modelv1.StopReason_STOP_REASON_STOP), Timing: &effectv1.Timing{Attempts: 1}}, nil
}

func (*models) ListProviders(context.Context, *modelv1.ListProvidersRequest) (*modelv1.ListProvidersResponse, error) {
	return &modelv1.ListProvidersResponse{Providers: []*modelv1.Provider{{Name: "mockllm", Accounts: []*modelv1.Account{{Name: "default", Usable: true}}}}}, nil
}

func (*models) ReleaseGenerate(context.Context, *modelv1.ReleaseGenerateRequest) (*modelv1.ReleaseGenerateResponse, error) {
	return &modelv1.ReleaseGenerateResponse{}, nil
}

// site is what outlives the service: the database, the bodies, and the other services.
type site struct {
	t        *testing.T
	db       *sqlite.DB
	blobs    blob.Store
	models   *models
	others   grpcclient.Conn
	replicas memory.Table
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, models: &models{asked: make(chan string, 16), may: make(chan struct{})}}
	var err error
	s.db, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqlite.Options{})
	require.NoError(t, err)
	blobs, err := disk.Open(disk.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	s.blobs = blobs
	t.Cleanup(func() {
		require.NoError(t, blobs.Close())
		require.NoError(t, s.db.Close())
	})
	s.others = s.serve(func(r grpc.ServiceRegistrar) {
		modelv1.RegisterModelServiceServer(r, s.models)
		toolv1.RegisterToolServiceServer(r, toolv1.UnimplementedToolServiceServer{})
		sandboxv1.RegisterSandboxServiceServer(r, sandboxv1.UnimplementedSandboxServiceServer{})
	})
	return s
}

// serve serves in memory until the test ends.
func (s *site) serve(register func(grpc.ServiceRegistrar)) grpcclient.Conn {
	s.t.Helper()
	return grpcservertest.Serve(s.t, "user:ada", register)
}

// process joins the replica `one` with a new process.
func process(t *testing.T, table *memory.Table) *replica.Process {
	t.Helper()
	p, err := replica.Join(t.Context(), replica.Config{Table: table, Member: replica.Member{Service: "agentorch", Name: "one", Process: rand.Text()}})
	require.NoError(t, err)
	return p
}

// start starts the service. The function that it returns ends it.
func (s *site) start() (grpcclient.Conn, func()) {
	s.t.Helper()
	var cfg agentorch.Config
	config.SetDefaults(&cfg)
	require.NoError(s.t, config.Validate(&cfg))
	service, err := agentorch.New(s.t.Context(), cfg, agentorch.Deps{
		Owner: "agentorch-" + rand.Text(), Replica: process(s.t, &s.replicas),
		Models: s.others, Tools: s.others, Sandboxes: s.others, DB: s.db, Blobs: s.blobs, Logger: slog.New(slog.DiscardHandler), DataDir: "/data",
	})
	require.NoError(s.t, err)
	conn := s.serve(service.Register)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	return conn, func() {
		cancel()
		require.NoError(s.t, waittest.For(s.t, ended, "the service to end"))
		require.NoError(s.t, service.Close(context.Background()))
	}
}

func TestRunsAndEvalsOutliveTheService(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	conn, end := s.start()
	run, err := agentv1.NewRunServiceClient(conn).CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: &agentv1.RunSpec{
		Prompt: "What is it?", Steps: []*agentv1.AgentRef{{Name: "generate"}}, Model: &agentv1.ModelRef{Model: "mockllm/model"},
	}})
	require.NoError(t, err)
	eval, err := agentv1.NewEvalServiceClient(conn).CreateEval(t.Context(), &agentv1.CreateEvalRequest{Parent: project, Spec: &agentv1.EvalSpec{
		Task: "sums", Steps: []*agentv1.AgentRef{{Name: "generate"}}, Models: []*agentv1.ModelRef{{Model: "mockllm/model"}}, Scorers: []*agentv1.ScorerRef{{Name: "includes"}},
		Dataset: &agentv1.Dataset{Source: &agentv1.Dataset_Inline{Inline: &agentv1.SampleList{Samples: []*agentv1.Sample{
			{Id: "a", Input: []*modelv1.ChatMessage{chat.User("6 times 7?")}, Target: &agentv1.Target{Values: []string{"42"}}},
			{Id: "b", Input: []*modelv1.ChatMessage{chat.User("6 times 8?")}, Target: &agentv1.Target{Values: []string{"48"}}},
		}}}},
	}})
	require.NoError(t, err)
	keys := map[string]bool{}
	for range 3 {
		keys[waittest.For(t, s.models.asked, "the model calls of the run and of both samples")] = true
	}
	require.Len(t, keys, 3, "a key for each effect")
	changes, err := agentv1.NewRunServiceClient(conn).WatchProject(waittest.Context(t), &agentv1.WatchProjectRequest{Parent: project, FromHead: true})
	require.NoError(t, err)
	here, err := changes.Recv()
	require.NoError(t, err)
	end()

	close(s.models.may)
	for _, table := range []string{"view_journal", "view_label"} {
		require.NoError(t, s.db.Write(t.Context(), func(tx *sqlite.Tx) error {
			_, err := tx.Exec("DROP TABLE " + table)
			return err
		}), "a projection may be dropped")
	}
	conn, end = s.start()
	defer end()
	watch, err := agentv1.NewRunServiceClient(conn).WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: run.GetName(), Content: true})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, lastRun(t, watch).GetRunFinished().GetState())
	progress, err := agentv1.NewEvalServiceClient(conn).WatchEval(waittest.Context(t), &agentv1.WatchEvalRequest{Name: eval.GetName()})
	require.NoError(t, err)
	for {
		if _, err = progress.Recv(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, io.EOF)
	done, err := agentv1.NewEvalServiceClient(conn).GetEval(t.Context(), &agentv1.GetEvalRequest{Name: eval.GetName()})
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, done.GetState())
	for len(s.models.asked) > 0 {
		assert.True(t, keys[waittest.For(t, s.models.asked, "a model call that was asked for")], "what was under way is asked for again by its own key, and nothing else")
	}
	changes, err = agentv1.NewRunServiceClient(conn).WatchProject(waittest.Context(t), &agentv1.WatchProjectRequest{Parent: project, Cursor: here.GetCursor()})
	require.NoError(t, err)
	ended := map[string]bool{}
	for len(ended) < 4 {
		change, err := changes.Recv()
		require.NoError(t, err)
		if change.GetRun().GetState() == agentv1.RunState_RUN_STATE_SUCCEEDED || change.GetEval().GetState() == agentv1.EvalState_EVAL_STATE_SUCCEEDED {
			ended[change.GetRun().GetName()+change.GetEval().GetName()] = true
		}
	}
	assert.True(t, ended[eval.GetName()], "a watch of the project goes on after a restart: %v", ended)
	all, err := agentv1.NewRunServiceClient(conn).ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project})
	require.NoError(t, err)
	assert.Len(t, all.GetRuns(), 3)
}

// TestADamagedJournalKeepsNoServerFromItsStart damages journals and drops the rows of lists, which the start recreates.
// Undamaged journals continue. Damaged ones are listed as failed and stay open or done as they were.
func TestADamagedJournalKeepsNoServerFromItsStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	conn, end := s.start()
	runs, evals := agentv1.NewRunServiceClient(conn), agentv1.NewEvalServiceClient(conn)
	create := func() string {
		run, err := runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: &agentv1.RunSpec{
			Prompt: "What is it?", Steps: []*agentv1.AgentRef{{Name: "generate"}}, Model: &agentv1.ModelRef{Model: "mockllm/model"}, Labels: map[string]string{"kept": "yes"},
		}})
		require.NoError(t, err)
		waittest.For(t, s.models.asked, "the model call")
		return run.GetName()
	}
	done := create()
	s.models.may <- struct{}{}
	watch, err := runs.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: done})
	require.NoError(t, err)
	lastRun(t, watch)
	eval, err := evals.CreateEval(t.Context(), &agentv1.CreateEvalRequest{Parent: project, Spec: &agentv1.EvalSpec{
		Task: "sums", Steps: []*agentv1.AgentRef{{Name: "generate"}}, Models: []*agentv1.ModelRef{{Model: "mockllm/model"}}, Scorers: []*agentv1.ScorerRef{{Name: "includes"}},
		Dataset: &agentv1.Dataset{Source: &agentv1.Dataset_Inline{Inline: &agentv1.SampleList{Samples: []*agentv1.Sample{
			{Id: "a", Input: []*modelv1.ChatMessage{chat.User("6 times 7?")}, Target: &agentv1.Target{Values: []string{"42"}}},
		}}}},
	}})
	require.NoError(t, err)
	waittest.For(t, s.models.asked, "the model call of the sample")
	open, healthy := create(), create()
	end()

	for _, text := range []string{
		`UPDATE journal_event SET body = 'damaged' WHERE seq = 2 AND journal IN
			(SELECT id FROM journal WHERE name IN ('` + strings.Join([]string{done, open, eval.GetName()}, "', '") + `'))`,
		`DROP TABLE view_journal`,
	} {
		require.NoError(t, s.db.Write(t.Context(), func(tx *sqlite.Tx) error { _, err := tx.Exec(text); return err }))
	}
	isOpen := func(name string) (is bool) {
		require.NoError(t, s.db.Read(t.Context(), func(v *sqlite.View) error {
			return v.QueryRow(`SELECT open FROM journal WHERE name = ?`, name).Scan(&is)
		}))
		return is
	}
	close(s.models.may)
	conn, end = s.start()
	defer end()
	runs, evals = agentv1.NewRunServiceClient(conn), agentv1.NewEvalServiceClient(conn)
	watch, err = runs.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: healthy})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, lastRun(t, watch).GetRunFinished().GetState())
	listed, err := runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project, Labels: map[string]string{"kept": "yes"}})
	require.NoError(t, err)
	require.Len(t, listed.GetRuns(), 3)
	for _, run := range listed.GetRuns() {
		if run.GetName() == healthy {
			continue
		}
		assert.Equal(t, run.GetName() == open, isOpen(run.GetName()))
		assert.Contains(t, run.GetError().GetMessage(), "cannot be read")
	}
	all, err := evals.ListEvals(t.Context(), &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	require.Len(t, all.GetEvals(), 1)
	assert.Equal(t, eval.GetName(), all.GetEvals()[0].GetName())
	assert.Contains(t, all.GetEvals()[0].GetError().GetMessage(), "cannot be read")
	assert.True(t, isOpen(eval.GetName()))

	shown, err := evals.GetEval(t.Context(), &agentv1.GetEvalRequest{Name: eval.GetName()})
	require.NoError(t, err)
	assert.Contains(t, shown.GetError().GetMessage(), "cannot be read")
	_, err = evals.CancelEval(t.Context(), &agentv1.CancelEvalRequest{Name: eval.GetName(), Reason: "it cannot go on"})
	require.NoError(t, err)
	assert.False(t, isOpen(eval.GetName()))
	require.Eventually(t, func() bool {
		_, err := evals.DeleteEval(t.Context(), &agentv1.DeleteEvalRequest{Name: eval.GetName()})
		return err == nil
	}, waittest.Bound, 10*time.Millisecond, "its run ends, and it can be deleted")
}

func lastRun(t *testing.T, watch grpc.ServerStreamingClient[agentv1.WatchRunResponse]) (last *agentv1.Event) {
	t.Helper()
	for {
		one, err := watch.Recv()
		if errors.Is(err, io.EOF) {
			return last
		}
		require.NoError(t, err)
		last = one.GetEvent()
	}
}

func TestTheServerTellsAboutItself(t *testing.T) {
	t.Parallel()
	conn, end := newSite(t).start()
	defer end()
	info, err := agentv1.NewAdminServiceClient(conn).GetServerInfo(t.Context(), &agentv1.GetServerInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"agentorch"}, info.GetServices())
	assert.Equal(t, "/data", info.GetDataDir())
	assert.Empty(t, info.GetDefaultDriver(), "nobody could be asked for it")
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for text, change := range map[string]func(*agentorch.Config){
		"max_generates": func(c *agentorch.Config) { c.Engine.MaxGenerates = -1 },
		"renew_leases":  func(c *agentorch.Config) { c.Engine.RenewLeases = -1 },
	} {
		var cfg agentorch.Config
		config.SetDefaults(&cfg)
		change(&cfg)
		require.ErrorContains(t, config.Validate(&cfg), text)
	}
}

// TestAnEngineThatCannotBeginEndsTheService: a service that answers and drives nothing would be found by no one.
func TestAnEngineThatCannotBeginEndsTheService(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "closed.db"), sqlite.Options{})
	require.NoError(t, err)
	others := &grpc.ClientConn{}
	var cfg agentorch.Config
	config.SetDefaults(&cfg)
	service, err := agentorch.New(t.Context(), cfg, agentorch.Deps{
		Owner: "agentorch-" + rand.Text(), Replica: process(t, &memory.Table{}),
		Models: others, Tools: others, Sandboxes: others, DB: db, Logger: slog.New(slog.DiscardHandler), DataDir: "/data",
	})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(context.Background()) }()
	require.Error(t, waittest.For(t, ended, "the service to end with its engine"))
	require.NoError(t, service.Close(context.Background()))
}
