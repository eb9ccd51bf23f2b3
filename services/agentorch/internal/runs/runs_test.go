package runs_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newFleet(t *testing.T) *fleettest.Fleet {
	t.Helper()
	f := fleettest.New(t, fleettest.Parts{
		Open: func(ctx context.Context, db *sqlite.DB) (journal.Store, error) {
			return journalsqlite.Open(ctx, db, run.FoldRow)
		},
		Agents: []agent.Definition{generate.Definition()},
	})
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	return f.Start()
}

func TestARunOfASample(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	sample := fleettest.Spec(fleettest.Step("generate", ""))
	sample.Input = []*modelv1.ChatMessage{fleettest.User("first"), fleettest.User("second")}
	sample.Target, sample.Choices, sample.MetadataJson = &agentv1.Target{Values: []string{"t"}}, []string{"a"}, `{"k": 1}`
	sample.Model, sample.Sandboxes = &agentv1.ModelRef{Model: "mockllm/other"}, map[string]*sandboxv1.SandboxSpec{"default": {}}
	sample.Labels, sample.Attribution = map[string]string{"l": "1"}, &effectv1.Attribution{Eval: "projects/p/evals/e", Sample: "s"}
	asked := proto.CloneOf(sample)
	plan, err := f.Runs.Check(t.Context(), "p", sample)
	require.NoError(t, err)
	head, err := f.Runs.Start(t.Context(), plan, runs.Key{}, "system")
	assert.True(t, proto.Equal(asked, sample), "what was asked for stays as it is")
	require.NoError(t, err)
	got := f.Finish(head.Name)
	spec := got.Spec()
	assert.Equal(t, "mockllm/other", spec.GetModel().GetModel())
	assert.Equal(t, []string{"a"}, spec.GetChoices())
	assert.Equal(t, []string{"t"}, spec.GetTarget().GetValues())
	assert.JSONEq(t, `{"k": 1}`, spec.GetMetadataJson())
	assert.Equal(t, map[string]string{"l": "1"}, spec.GetLabels())
	assert.Equal(t, 1, f.Sandboxes.Made())
	request := f.Models.Requests()[0]
	assert.Equal(t, "projects/p/evals/e", request.GetAttribution().GetEval())
	assert.Equal(t, "s", request.GetAttribution().GetSample())
	ids := map[string]bool{}
	for _, m := range got.Messages() {
		assert.NotEmpty(t, m.GetId())
		ids[m.GetId()] = true
	}
	assert.Len(t, ids, 3)
	assert.Equal(t, modelv1.MessageSource_MESSAGE_SOURCE_INPUT, got.Messages()[0].GetSource())
}

func TestIDsAreShortAndSortByTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var ids []string
	for range 20 {
		name := f.Create(fleettest.Spec(fleettest.Step("generate", ""))).Name
		id := name[strings.LastIndexByte(name, '/')+1:]
		assert.Len(t, id, 18)
		ids = append(ids, id)
	}
	prefixes := make([]string, len(ids))
	for i, id := range ids {
		prefixes[i] = id[:10]
	}
	assert.True(t, slices.IsSorted(prefixes), "the first ten characters are the time")
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), 20)
}

func TestCancelManyGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	asked := make(chan struct{}, 2)
	f.Models.Answer = func(ctx context.Context, _ *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	first, second := f.Create(fleettest.Spec(fleettest.Step("generate", ""))).Name, f.Create(fleettest.Spec(fleettest.Step("generate", ""))).Name
	waittest.For(t, asked, "the model calls of both runs")
	waittest.For(t, asked, "the model calls of both runs")
	err := f.Runs.CancelAll(t.Context(), []string{first, "projects/p/runs/none", second}, "eval", "the eval ends")
	require.ErrorIs(t, err, journal.ErrNotFound)
	require.NoError(t, f.Runs.CancelAll(t.Context(), []string{first, second}, "eval", "another reason"), "the same id is the same cancel")
	for _, name := range []string{first, second} {
		assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(name).Phase)
	}
}

// noModels is a model gateway that stays away.
type noModels struct{ modelv1.ModelServiceClient }

func (noModels) ListProviders(context.Context, *modelv1.ListProvidersRequest, ...grpc.CallOption) (*modelv1.ListProvidersResponse, error) {
	return nil, rpcerr.ServiceUnavailable("modelgw", time.Second, "modelgw is away")
}

// A client gets an error if a service is unreachable; the run of a sample uses services that wait.
func TestSamplesAskTheServicesThatWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	impatient := f.Runs.Checker
	impatient.Models = noModels{}
	made := runs.New(runs.Deps{
		Store: f.Store, Engine: f.Engine, Checker: impatient, Patient: f.Runs.Services, Notes: f.Notes, Logger: slog.New(slog.DiscardHandler),
	})
	spec := fleettest.Spec(fleettest.Step("generate", ""))
	_, err := made.Create(t.Context(), runs.Request{Project: "p", Spec: spec, Principal: "user:ada"})
	assert.Equal(t, codes.Unavailable, rpcerr.Code(err))
	_, err = made.Validate(t.Context(), "p", spec)
	assert.Equal(t, codes.Unavailable, rpcerr.Code(err))
	spec.Attribution = &effectv1.Attribution{Eval: "projects/p/evals/e", Sample: "s"}
	name, err := made.CreateSample(t.Context(), "p", spec, "e/1/1", journal.Head{})
	require.NoError(t, err)
	f.Finish(name)
}

// bodySizes notes the sizes of posted commands.
type bodySizes struct {
	journal.Store

	mu    sync.Mutex
	sizes []int
}

func (b *bodySizes) Post(ctx context.Context, name string, c journal.Command) error {
	b.mu.Lock()
	b.sizes = append(b.sizes, len(c.Body))
	b.mu.Unlock()
	return b.Store.Post(ctx, name, c)
}

// TestLargeMessagesAreNotInTheRowsOfCommands: rows of commands stay as long as their run, one for each command.
func TestLargeMessagesAreNotInTheRowsOfCommands(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a large text ", 100_000)
	messages := []*modelv1.ChatMessage{fleettest.User(text)}
	for kind, request := range map[string]func(run string) proto.Message{
		"message":   func(run string) proto.Message { return &agentv1.PostMessageRequest{Name: run, Messages: messages} },
		"interrupt": func(run string) proto.Message { return &agentv1.InterruptRunRequest{Name: run, Messages: messages} },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.Stop()
			rows := &bodySizes{}
			f.Wrap = func(s journal.Store) journal.Store { rows.Store = s; return rows }
			f.Models.Answer = func(ctx context.Context, _ *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			f.Start()
			head := f.Create(fleettest.Spec(fleettest.Step("generate", "")))
			command := runs.Command{Run: head.Name, Kind: kind, RequestID: "one", Principal: "user:ada", Request: request(head.Name)}
			seq, err := f.Runs.Steer(waittest.Context(t), command)
			require.NoError(t, err)
			again, err := f.Runs.Steer(waittest.Context(t), command)
			require.NoError(t, err)
			assert.Equal(t, seq, again, "the same command")
			assert.Less(t, slices.Max(rows.sizes), 4<<10)
			events, err := f.Store.Read(t.Context(), head.Ref, journal.Range{After: seq - 1, Limit: 1})
			require.NoError(t, err)
			assert.Equal(t, text, chat.Text(events[0].GetCommandReceived().GetContent().GetMessages()[0]), "the run has all of it")
			_, err = f.Runs.Cancel(waittest.Context(t), runs.Command{Run: head.Name, Kind: "cancel", Principal: "user:ada", Request: &agentv1.CancelRunRequest{Name: head.Name}})
			require.NoError(t, err)
		})
	}
}
