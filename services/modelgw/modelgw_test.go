package modelgw_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

func TestAModelAnswersWithItsTiming(t *testing.T) {
	t.Parallel()
	g := start(t)
	answer, err := g.models.Generate(t.Context(), ask("", "hello"))
	require.NoError(t, err)
	assert.Equal(t, "Default output from mockllm/model", answer.GetOutput().GetCompletion())
	assert.Equal(t, modelv1.StopReason_STOP_REASON_STOP, chat.StopReason(answer.GetOutput()))
	assert.Positive(t, answer.GetOutput().GetUsage().GetTotalTokens())
	assert.Equal(t, int32(1), answer.GetTiming().GetAttempts())
	require.NotNil(t, answer.GetOutput().Time, "how long the call took, in seconds")
	assert.GreaterOrEqual(t, answer.GetOutput().GetTime(), 0.)
	assert.Less(t, answer.GetOutput().GetTime(), 60.)
	assert.Nil(t, answer.GetPreparedMessages(), "nothing had to be changed")
}

func TestAnswersAreTiedToSampleAndTurnWhateverTheOrder(t *testing.T) {
	t.Parallel()
	g := start(t)
	script := `{"outputs": [
		{"sample": "a", "outputs": ["a1", {"tool_calls": [{"function": "bash", "arguments": {"cmd": "ls"}}]}]},
		{"sample": 7, "turn": 2, "output": "seven, second"},
		{"contains": "capital", "output": {"text": "Paris", "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}}}]}`
	texts := map[string]*modelv1.GenerateRequest{
		"seven, second": on("7", 2, ask(script, "x")),
		"a1":            on("a", 1, ask(script, "x")),
		"Paris":         on("b", 9, ask(script, "the capital?")),
	}
	for want, request := range texts {
		answer, err := g.models.Generate(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, want, answer.GetOutput().GetCompletion())
	}
	answer, err := g.models.Generate(t.Context(), on("a", 2, ask(script, "x")))
	require.NoError(t, err)
	calls := chat.FirstMessage(answer.GetOutput()).GetToolCalls()
	require.Len(t, calls, 1)
	assert.Equal(t, `{"cmd": "ls"}`, calls[0].GetArgumentsJson())
	assert.Equal(t, modelv1.StopReason_STOP_REASON_TOOL_CALLS, chat.StopReason(answer.GetOutput()))

	_, err = g.models.Generate(t.Context(), on("a", 3, ask(script, "x")))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SCRIPT_EXHAUSTED), err)
	assert.ErrorContains(t, err, `sample "a"`)
}

func TestACallWithAKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	g := start(t)
	request := keyed("run1/7", on("s", 1, ask(`{"outputs": ["first", "second"]}`, "q")))
	first, err := g.models.Generate(t.Context(), request)
	require.NoError(t, err)
	request.Attribution.Turn, request.Timeout = 5, nil
	again, err := g.models.Generate(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, "first", first.GetOutput().GetCompletion())
	assert.Equal(t, "first", again.GetOutput().GetCompletion(), "attribution is no part of the content")
	assert.Equal(t, chat.FirstMessage(first.GetOutput()).GetId(), chat.FirstMessage(again.GetOutput()).GetId())
	assert.Len(t, g.calls(t), 1)

	_, err = g.models.Generate(t.Context(), keyed("run1/7", ask("", "another question")))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), err)

	other := keyed("run1/7", ask("", "another question"))
	other.Parent = "projects/other"
	_, err = g.models.Generate(t.Context(), other)
	require.NoError(t, err, "keys of two projects never meet")
}

func TestAnAnswerIsKeptUntilItIsReleased(t *testing.T) {
	t.Parallel()
	g := start(t)
	_, err := g.models.Generate(t.Context(), keyed("k", ask("", "q")))
	require.NoError(t, err)
	attach := func() error {
		stream, err := g.models.AttachGenerate(waittest.Context(t), &modelv1.AttachGenerateRequest{Parent: project, RequestId: "k"})
		require.NoError(t, err)
		_, err = receive(t, stream)
		return err
	}
	require.NoError(t, attach())
	_, err = g.models.ReleaseGenerate(t.Context(), &modelv1.ReleaseGenerateRequest{Parent: project, RequestIds: []string{"k", "unknown"}})
	require.NoError(t, err)
	assert.True(t, rpcerr.Is(attach(), errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN))
}

func TestAnswersOfARunAreReleasedTogether(t *testing.T) {
	t.Parallel()
	g := start(t)
	for _, key := range []string{"r/1", "r/2", "r2/1"} {
		_, err := g.models.Generate(t.Context(), keyed(key, ask("", "q")))
		require.NoError(t, err)
	}
	_, err := g.models.ReleaseRunGenerates(t.Context(), &modelv1.ReleaseRunGeneratesRequest{Parent: project, Runs: []string{project + "/runs/r", project + "/runs/none"}})
	require.NoError(t, err)
	for key, kept := range map[string]bool{"r/1": false, "r/2": false, "r2/1": true} {
		stream, err := g.models.AttachGenerate(waittest.Context(t), &modelv1.AttachGenerateRequest{Parent: project, RequestId: key})
		require.NoError(t, err)
		_, err = receive(t, stream)
		assert.Equal(t, kept, err == nil, key)
	}
	_, err = g.models.ReleaseRunGenerates(t.Context(), &modelv1.ReleaseRunGeneratesRequest{Parent: project, Runs: []string{"projects/else/runs/r"}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), err)
}

func TestAFailureIsKeptToo(t *testing.T) {
	t.Parallel()
	g := start(t)
	request := keyed("k", ask(`{"outputs": [{"error": {"status": 400, "message": "bad schema"}}, "fine"]}`, "q"))
	for range 2 {
		_, err := g.models.Generate(t.Context(), request)
		require.Error(t, err)
		assert.Equal(t, codes.FailedPrecondition, rpcerr.Code(err))
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED), err)
		assert.ErrorContains(t, err, "bad schema")
	}
	assert.Len(t, g.calls(t), 1)
}

func TestACallThatGivesUpListsItsAttempts(t *testing.T) {
	t.Parallel()
	g := start(t)
	script := `{"outputs": [{"error": {"status": 429, "message": "slow down", "retry_after_s": 0.01}}, {"error": {"status": 429, "message": "slow down", "retry_after_s": 0.01}}, {"error": {"status": 503, "message": "overloaded"}}]}`
	request := keyed("k", ask(script, "q"))
	request.Config = &modelv1.GenerateConfig{MaxRetries: new(int32(2))}
	for range 2 { // the second time from the ledger
		_, err := g.models.Generate(t.Context(), request)
		require.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
		require.ErrorContains(t, err, "overloaded; this was attempt 3, after 2 × mockllm answered 429: slow down")
		fault, ok := rpcerr.As(err)
		require.True(t, ok)
		require.Len(t, fault.Details, 3)
		timing, ok := fault.Details[2].(*effectv1.Timing)
		require.True(t, ok, "%T", fault.Details[2])
		assert.EqualValues(t, 3, timing.GetAttempts())
		for _, detail := range fault.Details[:2] {
			failed, ok := detail.(*modelv1.FailedAttempt)
			require.True(t, ok, "%T", detail)
			assert.EqualValues(t, 429, failed.GetStatus())
			assert.Positive(t, failed.GetWait().AsDuration())
		}
	}
}

func TestACallThatWaitsForAnotherAttemptIsShown(t *testing.T) {
	t.Parallel()
	g := start(t)
	watch := func(parent string) grpc.ServerStreamingClient[modelv1.WatchRetriesResponse] {
		stream, err := g.models.WatchRetries(waittest.Context(t), &modelv1.WatchRetriesRequest{Parent: parent})
		require.NoError(t, err)
		return stream
	}
	all := watch("projects/-")
	var calling sync.WaitGroup
	defer waittest.Return(t, calling.Wait, "the call that was cancelled")
	calling.Go(func() {
		script := `{"outputs": [{"error": {"status": 429, "message": "slow down", "retry_after_s": 600}}, "fine"]}`
		_, err := g.models.Generate(context.WithoutCancel(t.Context()), keyed("k", ask(script, "q")))
		assert.Equal(t, codes.Canceled, rpcerr.Code(err), "%v", err)
	})
	news, err := all.Recv()
	require.NoError(t, err)
	assert.Equal(t, project, news.GetParent())
	assert.Equal(t, "k", news.GetRequestId())
	assert.Equal(t, "mockllm answered 429: slow down", news.GetNote().GetMessage())
	assert.EqualValues(t, 1, news.GetNote().GetFailedAttempts())
	assert.InDelta(t, 600, time.Until(news.GetNote().GetRetryTime().AsTime()).Seconds(), 120)
	late, err := watch(project).Recv()
	require.NoError(t, err)
	assert.Equal(t, "k", late.GetRequestId(), "who comes later hears what stands")
	_, err = g.models.CancelGenerate(t.Context(), &modelv1.CancelGenerateRequest{Parent: project, RequestId: "k"})
	require.NoError(t, err)
	news, err = all.Recv()
	require.NoError(t, err)
	assert.Nil(t, news.GetNote(), "it waits no more")
	_, err = watch("everything").Recv()
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
}

func TestAFullQueueIsNoResult(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelConfig, _ *modelDeps) { c.MaxWaiting = 1 })
	slow := func(id string) *modelv1.GenerateRequest {
		r := keyed(id, ask(`{"outputs": [{"output": {"text": "slow", "delay_s": 3600}}]}`, "q"))
		r.Config = &modelv1.GenerateConfig{MaxConnections: new(int32(1))}
		return r
	}
	done := make(chan error, 2)
	for i := range 2 {
		go func() {
			_, err := g.models.Generate(t.Context(), slow(fmt.Sprint("slow", i)))
			done <- err
		}()
	}
	require.Eventually(t, func() bool {
		pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/-/-"})
		return err == nil && len(pools.GetConnectionPools()) == 1 && pools.GetConnectionPools()[0].GetWaiting() == 1
	}, waitLimit, tick)
	third := slow("third")
	_, err := g.models.Generate(t.Context(), third)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL), err)
	assert.Positive(t, rpcerr.RetryAfter(err))
	for i := range 2 {
		_, err := g.models.CancelGenerate(t.Context(), &modelv1.CancelGenerateRequest{Parent: project, RequestId: fmt.Sprint("slow", i)})
		require.NoError(t, err)
		require.True(t, rpcerr.Is(waittest.For(t, done, "the end of a call that was cancelled"), errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED))
	}
	third.Timeout = durationOf("50ms")
	_, err = g.models.Generate(t.Context(), third)
	assert.Equal(t, codes.DeadlineExceeded, rpcerr.Code(err), "the call is made now: nothing was kept under its key")
}

// A call that is cancelled ends with an account of what was done until then.
func TestACancelledCallSaysWhereItsTimeWent(t *testing.T) {
	t.Parallel()
	ledger := onDisk(t)
	script := `{"outputs": [{"error": {"status": 429, "message": "slow down", "retry_after_s": 0.01}}, {"text": "late", "delay_s": 600}]}`
	request := keyed("k", ask(script, "q"))
	deaths(t, ledger, request, 4)
	g := start(t, withLedger(ledger, "heir"), func(c *modelgw.Config, _ *modelgw.Deps) { c.CancelGrace = waittest.Bound })
	ended := make(chan error, 1)
	go func() {
		_, err := g.models.Generate(context.WithoutCancel(t.Context()), request)
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(g.calls(t)) == 2 }, waitLimit, tick, "the second attempt")
	_, err := g.models.CancelGenerate(t.Context(), &modelv1.CancelGenerateRequest{Parent: project, RequestId: "k"})
	require.NoError(t, err)
	fault, ok := rpcerr.As(waittest.For(t, ended, "the end of the call that was cancelled"))
	require.True(t, ok)
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED, fault.Reason)
	require.Len(t, fault.Details, 2, "a failed attempt, and the timing")
	failed, _ := fault.Details[0].(*modelv1.FailedAttempt)
	assert.EqualValues(t, 429, failed.GetStatus())
	timing, _ := fault.Details[1].(*effectv1.Timing)
	assert.EqualValues(t, 2, timing.GetAttempts())
	assert.EqualValues(t, 4, timing.GetReissues())
	assert.Positive(t, timing.GetWorking().AsDuration())
}

func TestACancelBeforeTheCallPreventsIt(t *testing.T) {
	t.Parallel()
	g := start(t)
	before, err := g.models.CancelGenerate(t.Context(), &modelv1.CancelGenerateRequest{Parent: project, RequestId: "k"})
	require.NoError(t, err)
	assert.False(t, before.GetAlreadyDone())
	_, err = g.models.Generate(t.Context(), keyed("k", ask("", "q")))
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED), err)
	assert.Equal(t, codes.Canceled, rpcerr.Code(err))
	assert.Empty(t, g.calls(t))
}

func TestAKeyedCallOutlivesItsCallerAndOneWithoutDoesNot(t *testing.T) {
	t.Parallel()
	g := start(t)
	script := `{"outputs": [{"output": {"text": "late", "delay_s": 0.2}}]}`
	leave := func(r *modelv1.GenerateRequest) {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			_, _ = g.models.Generate(ctx, r)
		}()
		sample := r.GetAttribution().GetSample()
		require.Eventually(t, func() bool {
			for _, call := range g.calls(t) {
				if call.Sample == sample {
					return true
				}
			}
			return false
		}, waitLimit, tick)
		cancel()
		waittest.For(t, left, "the caller that left")
	}
	leave(keyed("k", on("keyed", 1, ask(script, "q"))))
	stream, err := g.models.AttachGenerate(waittest.Context(t), &modelv1.AttachGenerateRequest{Parent: project, RequestId: "k"})
	require.NoError(t, err)
	events, err := receive(t, stream)
	require.NoError(t, err)
	assert.Equal(t, "late", events[len(events)-1].GetCompleted().GetOutput().GetCompletion())

	leave(on("free", 1, ask(`{"outputs": [{"output": {"text": "never", "delay_s": 3600}}]}`, "q")))
	require.Eventually(t, func() bool {
		pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/-/-"})
		return err == nil && pools.GetConnectionPools()[0].GetInFlight() == 0
	}, waitLimit, tick, "the connection is free at once")
}

func TestTimeoutBoundsTheCall(t *testing.T) {
	t.Parallel()
	g := start(t)
	r := keyed("k", ask(`{"outputs": [{"output": {"text": "late", "delay_s": 3600}}]}`, "q"))
	r.Timeout = durationOf("50ms")
	_, err := g.models.Generate(t.Context(), r)
	assert.Equal(t, codes.DeadlineExceeded, rpcerr.Code(err), err)
}

func TestAStreamHoldsTheWholeAnswerInPieces(t *testing.T) {
	t.Parallel()
	g := start(t)
	text := strings.Repeat("many words and ümläuts, ", 40)
	for _, id := range []string{"", "k"} {
		stream, err := g.models.StreamGenerate(waittest.Context(t), &modelv1.StreamGenerateRequest{
			Request: keyed(id, ask(fmt.Sprintf(`{"outputs": [{"output": %q}]}`, text), "q")),
		})
		require.NoError(t, err)
		events, err := receive(t, stream)
		require.NoError(t, err)
		require.Greater(t, len(events), 5)
		assert.Equal(t, int32(1), events[0].GetStarted().GetAttempt())
		assert.Equal(t, "mockllm/model", events[0].GetStarted().GetModel())
		assert.Equal(t, text, said(events))
		last := events[len(events)-1].GetCompleted()
		require.NotNil(t, last)
		assert.Equal(t, text, last.GetOutput().GetCompletion())
	}
	stream, err := g.models.AttachGenerate(waittest.Context(t), &modelv1.AttachGenerateRequest{Parent: project, RequestId: "k", Cursor: "nonsense"})
	require.NoError(t, err)
	_, err = receive(t, stream)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR), err)
}

// A field that is wrong has the path that the caller wrote; an error that is about none stays as it is.
func TestAStreamNamesItsFieldsFromItsRequestOn(t *testing.T) {
	t.Parallel()
	g := start(t)
	refused := func(change func(*modelv1.GenerateRequest)) *rpcerr.Error {
		t.Helper()
		request := ask(`{"outputs": []}`, "q")
		change(request)
		stream, err := g.models.StreamGenerate(waittest.Context(t), &modelv1.StreamGenerateRequest{Request: request})
		require.NoError(t, err)
		_, err = receive(t, stream)
		e, ok := rpcerr.As(rpcerr.FromStatus(err))
		require.True(t, ok, err)
		return e
	}
	e := refused(func(r *modelv1.GenerateRequest) { r.Model = "absent/x" })
	require.Len(t, e.Fields, 1, e)
	assert.Equal(t, "request.model", e.Fields[0].Path)
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND, e.Reason)
	assert.True(t, strings.HasPrefix(e.Message, "request.model: "), e.Message)

	e = refused(func(*modelv1.GenerateRequest) {})
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_SCRIPT_EXHAUSTED, e.Reason)
	assert.Empty(t, e.Fields)
	assert.NotContains(t, e.Message, "request: ")
}

// Time is stopped while the watcher leaves and returns, so that the call is still in flight then.
func TestAWatcherGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := start(t)
		text := strings.Repeat("0123456789", 40)
		request := keyed("k", ask(fmt.Sprintf(`{"outputs": [{"output": {"text": %q, "chunk_delay_s": 0.1}}]}`, text), "q"))
		done := make(chan error, 1)
		go func() {
			_, err := g.models.Generate(t.Context(), request)
			done <- err
		}()
		var first *modelv1.StreamGenerateResponse
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := g.models.AttachGenerate(ctx, &modelv1.AttachGenerateRequest{Parent: project, RequestId: "k"})
			require.NoError(t, err)
			for range 4 { // started and three pieces
				if first, err = stream.Recv(); err != nil {
					return false
				}
			}
			return true
		}, waitLimit, tick)
		stream, err := g.models.AttachGenerate(waittest.Context(t), &modelv1.AttachGenerateRequest{Parent: project, RequestId: "k", Cursor: first.GetCursor()})
		require.NoError(t, err)
		events, err := receive(t, stream)
		require.NoError(t, err)
		require.NoError(t, waittest.For(t, done, "the answer of the call that is watched"))
		assert.True(t, strings.HasSuffix(text, said(events)))
		assert.Len(t, said(events), len(text)-3*16)
		assert.NotNil(t, events[len(events)-1].GetCompleted())
	})
}

// Time is stopped until the watcher has seen what came before the failure.
func TestARetryAfterTheFirstPieceIsARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := start(t)
		text := strings.Repeat("x", 100)
		stream, err := g.models.StreamGenerate(waittest.Context(t), &modelv1.StreamGenerateRequest{Request: keyed("k", ask(fmt.Sprintf(
			`{"outputs": [{"output": {"text": %q, "error": {"status": 503, "after_chunks": 2, "times": 1, "retry_after_s": 0.01}}}]}`, text), "q"))})
		require.NoError(t, err)
		events, err := receive(t, stream)
		require.NoError(t, err)
		restarts := 0
		for _, event := range events {
			if event.GetRestart() != nil {
				restarts++
				assert.Equal(t, int32(2), event.GetRestart().GetAttempt())
			}
		}
		assert.Equal(t, 1, restarts)
		assert.Equal(t, text, said(events))
		answer := events[len(events)-1].GetCompleted()
		require.Len(t, answer.GetFailedAttempts(), 1)
		assert.Equal(t, int32(503), answer.GetFailedAttempts()[0].GetStatus())
		assert.Equal(t, int32(2), answer.GetTiming().GetAttempts())
		assert.Positive(t, answer.GetTiming().GetRetryWait().AsDuration())
	})
}

// onDisk is a ledger in a file, as a service has it.
func onDisk(t *testing.T) effect.Ledger {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "effects.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ledger, err := effectsqlite.New(t.Context(), db, "modelgw")
	require.NoError(t, err)
	return ledger
}

// Stops in good order cut one call short, again and again: it is made again each time, and none of that counts against
// it.
func TestGracefulStopsDuringACallCountNothing(t *testing.T) {
	t.Parallel()
	ledger := onDisk(t)
	key := effect.Key{Project: "default", ID: "k"}
	endless := keyed("k", on("s", 1, ask(`{"outputs": [{"output": {"text": "the answer", "delay_s": 600}}]}`, "q")))
	const stops = 7
	for n := range stops {
		g := start(t, withLedger(ledger, fmt.Sprint("process-", n)))
		go func() { _, _ = g.models.Generate(context.WithoutCancel(t.Context()), endless) }()
		require.Eventually(t, func() bool { return len(g.calls(t)) == 1 }, waitLimit, tick, "the call has reached the model")
		g.close()
		record, err := ledger.Lookup(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, effect.Yielded, record.State)
		require.Zero(t, record.Reissues)
	}
	record, err := ledger.Lookup(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, stops, record.Yields)
}

// dying is a ledger that accepts claims and never an end, as that of a process that is killed.
type dying struct{ effect.Ledger }

func (dying) Finish(context.Context, effect.Key, string, effect.Outcome) error {
	return errors.New("killed")
}

func (dying) Yield(context.Context, string, ...effect.Key) error { return errors.New("killed") }

// deaths leaves the claim of a request as so many dead processes do, each of which had the call in flight.
func deaths(t *testing.T, ledger effect.Ledger, request *modelv1.GenerateRequest, n int) {
	t.Helper()
	first := start(t, withLedger(dying{ledger}, "dead-1"))
	go func() { _, _ = first.models.Generate(context.WithoutCancel(t.Context()), request) }()
	key := effect.Key{Project: "default", ID: request.GetRequestId()}
	require.Eventually(t, func() bool { _, err := ledger.Lookup(t.Context(), key); return err == nil }, waitLimit, tick, "the call is claimed")
	first.close()
	for i := 1; i < n; i++ {
		_, err := ledger.Reclaim(t.Context(), key, fmt.Sprint("dead-", i), fmt.Sprint("dead-", i+1))
		require.NoError(t, err)
	}
}

func TestACallOfDeadProcessesIsMadeAgainFiveTimes(t *testing.T) {
	t.Parallel()
	ledger := onDisk(t)
	request := keyed("k", on("s", 1, ask(`{"outputs": [{"output": {"text": "the answer", "delay_s": 0.05}}]}`, "q")))
	deaths(t, ledger, request, 5)
	heir := start(t, withLedger(ledger, "heir"))
	answer, err := heir.models.Generate(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, "the answer", answer.GetOutput().GetCompletion())
	assert.True(t, answer.GetTiming().GetReissued())
	assert.EqualValues(t, 5, answer.GetTiming().GetReissues())
	calls := heir.calls(t)
	require.Len(t, calls, 1)
	assert.True(t, calls[0].Reissued)
}

func TestAWatcherOfALostCallSeesTheRestart(t *testing.T) {
	t.Parallel()
	ledger := onDisk(t)
	request := keyed("k", ask(`{"outputs": [{"output": {"text": "the answer", "delay_s": 3600}}]}`, "q"))
	deaths(t, ledger, request, 1)
	heir := start(t, withLedger(ledger, "heir"))
	caller, err := heir.models.StreamGenerate(waittest.Context(t), &modelv1.StreamGenerateRequest{Request: request})
	require.NoError(t, err)
	begun, err := caller.Recv()
	require.NoError(t, err)
	require.Equal(t, "1.1.0", begun.GetCursor())
	watcher, err := heir.models.AttachGenerate(waittest.Context(t), &modelv1.AttachGenerateRequest{Parent: project, RequestId: "k", Cursor: "0.1.3"})
	require.NoError(t, err)
	event, err := watcher.Recv()
	require.NoError(t, err)
	assert.EqualValues(t, 1, event.GetRestart().GetAttempt(), "the three pieces that the dead process sent are void")
	_, err = heir.models.CancelGenerate(t.Context(), &modelv1.CancelGenerateRequest{Parent: project, RequestId: "k"})
	require.NoError(t, err)
}

func TestACallThatIsLostOnceMoreTellsWhatItCost(t *testing.T) {
	t.Parallel()
	ledger := onDisk(t)
	request := keyed("k", on("s", 1, ask(`{"outputs": [{"output": {"text": "the answer", "delay_s": 0.05}}]}`, "q")))
	deaths(t, ledger, request, 6)
	heir := start(t, withLedger(ledger, "heir"))
	_, err := heir.models.Generate(t.Context(), request)
	fault, ok := rpcerr.As(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE, fault.Reason)
	require.Len(t, fault.Details, 1)
	timing, _ := fault.Details[0].(*effectv1.Timing)
	assert.EqualValues(t, 6, timing.GetAttempts())
	assert.EqualValues(t, 5, timing.GetReissues())
	assert.Empty(t, heir.calls(t))
}

func TestHowOftenACallIsMadeAgainCanBeConfigured(t *testing.T) {
	t.Parallel()
	ledger := onDisk(t)
	request := keyed("k", on("s", 1, ask(`{"outputs": [{"output": {"text": "the answer", "delay_s": 0.05}}]}`, "q")))
	deaths(t, ledger, request, 2)
	heir := start(t, withLedger(ledger, "heir"), func(c *modelgw.Config, _ *modelgw.Deps) { c.MaxReissues = 1 })
	_, err := heir.models.Generate(t.Context(), request)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE), "%v", err)
}

// An earlier version claimed a run's call under another hash of the same request. It is the same call.
func TestAnOlderHashOfARunsCallIsTheSameCall(t *testing.T) {
	t.Parallel()
	ledger := onDisk(t)
	older := effect.Hash{1, 2, 3}
	for id, run := range map[string]string{"r1/7": project + "/runs/r1", "r2/7": project + "/runs/r1", "k": ""} {
		_, _, err := ledger.Claim(t.Context(), effect.Key{Project: "default", ID: id}, older, "dead", 0)
		require.NoError(t, err)
		request := keyed(id, ask(`{"outputs": ["the answer"]}`, "q"))
		request.Attribution = &effectv1.Attribution{Run: run}
		g := start(t, withLedger(ledger, "later/"+id))
		answer, err := g.models.Generate(t.Context(), request)
		if id != "r1/7" {
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%s: %v", id, err)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, "the answer", answer.GetOutput().GetCompletion())
		assert.True(t, answer.GetTiming().GetReissued())
	}
}

// A failed call reports how long it took and, where the provider said so, what it cost.
func TestFailedCallsTellWhatTheyCost(t *testing.T) {
	t.Parallel()
	g := start(t)
	request := keyed("k", ask(`{"outputs": [{"output": {"text": "no", "stop_reason": "content_filter", "usage": {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}}}]}`, "q"))
	request.Config = &modelv1.GenerateConfig{FailOnRefusal: new(true)}
	for range 2 { // the kept outcome reports the same
		_, err := g.models.Generate(t.Context(), request)
		fault, ok := rpcerr.As(err)
		require.True(t, ok, "%v", err)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_MODEL_REFUSED), "%v", err)
		var usage *modelv1.ModelUsage
		var timing *effectv1.Timing
		for _, detail := range fault.Details {
			switch detail := detail.(type) {
			case *modelv1.ModelUsage:
				usage = detail
			case *effectv1.Timing:
				timing = detail
			}
		}
		assert.Positive(t, usage.GetTotalTokens(), "%v", fault)
		assert.EqualValues(t, 1, timing.GetAttempts())
	}
}

func TestStoredMediaReachesTheModel(t *testing.T) {
	t.Parallel()
	g := start(t, func(_ *modelConfig, d *modelDeps) {
		d.Blobs = func(_ context.Context, project, hash string) ([]byte, error) {
			if project != "default" || hash != strings.Repeat("ab", 32) {
				return nil, blob.ErrNotFound
			}
			return []byte("picture"), nil
		}
	})
	see := func(hash string) *modelv1.GenerateRequest {
		r := ask("", "")
		r.RecordCall = true
		r.Messages[0].Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{
			Media: &contentv1.Media{Source: &contentv1.Media_Blob{Blob: &contentv1.BlobRef{Hash: hash, MediaType: "image/png"}}},
		}}})
		return r
	}
	answer, err := g.models.Generate(t.Context(), see(strings.Repeat("ab", 32)))
	require.NoError(t, err)
	assert.Contains(t, answer.GetCall().GetRequestJson(), "data:image/png;base64,cGljdHVyZQ==")
	assert.Nil(t, answer.GetPreparedMessages(), "the answer does not carry the body back")
	_, err = g.models.Generate(t.Context(), see(strings.Repeat("cd", 32)))
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), err)
}

// A missing body, or a transient failure of the store, is not an outcome of the call: it has not begun. An unavailable
// store is not a fault of the request either, so that a run waits for it.
func TestMediaThatCannotBeReadIsKeptUnderNoKey(t *testing.T) {
	t.Parallel()
	for failure, want := range map[error]codes.Code{
		blob.ErrNotFound: codes.InvalidArgument,
		rpcerr.FromDisk(syscall.EMFILE, "the bodies"):   codes.Unavailable,
		rpcerr.FromDisk(syscall.ESTALE, "the bodies"):   codes.Unavailable,
		rpcerr.BodyTooLarge(1, "the body is too large"): codes.FailedPrecondition,
		errors.New("a fault of the server"):             codes.Internal,
	} {
		var readable atomic.Bool
		g := start(t, func(_ *modelConfig, d *modelDeps) {
			d.Blobs = func(context.Context, string, string) ([]byte, error) {
				if !readable.Load() {
					return nil, failure
				}
				return []byte("picture"), nil
			}
		})
		r := keyed("k", ask("", ""))
		r.Messages[0].Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{
			Media: &contentv1.Media{Source: &contentv1.Media_Blob{Blob: &contentv1.BlobRef{Hash: strings.Repeat("ab", 32), MediaType: "image/png"}}},
		}}})
		_, err := g.models.Generate(t.Context(), r)
		require.Equal(t, want, rpcerr.Code(err), err)
		assert.Equal(t, want == codes.Unavailable, rpcerr.StoreAway(err), err)
		readable.Store(true)
		_, err = g.models.Generate(t.Context(), r)
		require.NoError(t, err)
	}
}

func TestBadRequestsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	g := start(t)
	change := func(f func(*modelv1.GenerateRequest)) *modelv1.GenerateRequest {
		r := ask("", "q")
		f(r)
		return r
	}
	for name, c := range map[string]struct {
		request *modelv1.GenerateRequest
		reason  errorsv1.ErrorReason
		says    string
	}{
		"no provider in the name": {
			change(func(r *modelv1.GenerateRequest) { r.Model = "gpt-4o" }),
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "<provider>/<model>",
		},
		"unknown provider": {
			change(func(r *modelv1.GenerateRequest) { r.Model = "nosuch/x" }),
			errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND, "nosuch",
		},
		"no project": {
			change(func(r *modelv1.GenerateRequest) { r.Parent = "default" }),
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "projects/",
		},
		"unknown account": {
			change(func(r *modelv1.GenerateRequest) { r.Account = "spare" }),
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `"spare"`,
		},
		"unknown model argument": {
			change(func(r *modelv1.GenerateRequest) { r.ModelArgsJson = `{"outptus": []}` }),
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "outptus",
		},
		"a script that is not configured": {
			change(func(r *modelv1.GenerateRequest) { r.ModelArgsJson = `{"script": "/etc/passwd"}` }),
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "/etc/passwd",
		},
		"media that is not inline": {
			change(func(r *modelv1.GenerateRequest) {
				r.Messages[0].Content = chat.ListContent(chat.ImagePart("https://example.com/cat.png"))
			}),
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "message 0, part 0",
		},
		"bounds of connections": {
			change(func(r *modelv1.GenerateRequest) {
				r.Config = &modelv1.GenerateConfig{AdaptiveConnections: &modelv1.AdaptiveConnections{Min: new(int32(5)), Max: new(int32(3))}}
			}),
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "max must not be below min",
		},
		"a cache's expiry": {
			change(func(r *modelv1.GenerateRequest) {
				r.Config = &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true, Policy: &modelv1.CachePolicy{Expiry: "1w"}}}
			}),
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `"1w"`,
		},
		"a vendor's request": {
			change(func(r *modelv1.GenerateRequest) { r.Raw = &modelv1.RawRequest{Dialect: "openai-chat"} }),
			errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET, "vendor",
		},
		"a batch": {
			change(func(r *modelv1.GenerateRequest) {
				r.Config = &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{Enabled: true}}
			}),
			errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "no batch API",
		},
		"a prefix": {
			change(func(r *modelv1.GenerateRequest) { r.Prefix = &modelv1.MessagePrefix{Hash: "9f", Count: 3} }),
			errorsv1.ErrorReason_ERROR_REASON_PREFIX_UNKNOWN, "send all messages",
		},
	} {
		_, err := g.models.Generate(t.Context(), c.request)
		assert.Equal(t, c.reason, rpcerr.Reason(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, c.says, name)
	}
}
