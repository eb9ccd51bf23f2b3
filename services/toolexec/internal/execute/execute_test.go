package execute_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/execute"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// countingTool is a tool that counts its calls and answers with a function.
type countingTool struct {
	public *toolv1.ToolDefinition
	calls  atomic.Int32
	answer func(ctx context.Context, call *tool.Call) (*tool.Result, error)
}

// counting returns a tool with one optional parameter `n`.
func counting(name string, answer func(ctx context.Context, call *tool.Call) (*tool.Result, error)) *countingTool {
	return &countingTool{answer: answer, public: &toolv1.ToolDefinition{
		Info: &toolv1.ToolInfo{
			Name: name, Description: "A tool.",
			ParametersJson: `{"type":"object","properties":{"n":{"type":"integer","default":0,"description":"A number."}},"additionalProperties":false}`,
		},
		OnUnknown: toolv1.OnUnknown_ON_UNKNOWN_RETRY,
	}}
}

func (c *countingTool) Definition() *tool.Definition { return &tool.Definition{Public: c.public} }

func (c *countingTool) Call(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	c.calls.Add(1)
	return c.answer(ctx, call)
}

// answering answers every call with a text.
func answering(text string) func(context.Context, *tool.Call) (*tool.Result, error) {
	return func(context.Context, *tool.Call) (*tool.Result, error) { return tool.Text(text), nil }
}

// waiting answers after a delay, unless its context ends.
func waiting(d time.Duration) func(context.Context, *tool.Call) (*tool.Result, error) {
	return func(ctx context.Context, _ *tool.Call) (*tool.Result, error) {
		select {
		case <-time.After(d):
			return tool.Text("waited"), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// process is one incarnation of the service over a ledger.
type process struct {
	*execute.Executor

	runner   *effectrpc.Owner
	registry *tool.Registry
	refs     []*toolv1.ToolRef
}

func start(t *testing.T, ledger effect.Ledger, owner string, tools ...*countingTool) *process {
	t.Helper()
	p := &process{registry: &tool.Registry{}}
	for _, made := range tools {
		require.NoError(t, p.registry.Register(tool.Kind{
			Name:    made.public.GetInfo().GetName(),
			Options: json.RawMessage(`{"type":"object","additionalProperties":false}`),
			New:     func(json.RawMessage) (tool.Tool, error) { return made, nil },
		}))
		p.refs = append(p.refs, &toolv1.ToolRef{Name: made.public.GetInfo().GetName()})
	}
	var err error
	p.runner, err = effectrpc.New(effectrpc.Config{Service: "toolexec", Ledger: ledger, Owner: owner})
	require.NoError(t, err)
	p.Executor = execute.New(execute.Config{Effects: p.runner, CallTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	return p
}

// kill simulates a crash of the process: claims stay open.
func (p *process) kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.runner.Drain(ctx)
	p.Close()
}

func (p *process) batch(t *testing.T, requestID string, calls ...*toolv1.ToolCall) *execute.Batch {
	t.Helper()
	offers, err := p.registry.Offer("default", p.refs)
	require.NoError(t, err)
	return &execute.Batch{Project: "default", RequestID: requestID, Offers: offers, Refs: p.refs, Calls: calls}
}

func ref(id string, index int32) *toolv1.CallRef { return &toolv1.CallRef{CallId: id, Index: index} }

func call(id, function string) *toolv1.ToolCall {
	return &toolv1.ToolCall{Id: id, Function: function}
}

// run runs a batch and returns the results in the order of their arrival.
func (p *process) run(ctx context.Context, b *execute.Batch) ([]*toolv1.ToolResult, error) {
	var results []*toolv1.ToolResult
	err := p.Run(ctx, b, func(event *toolv1.ExecuteToolsResponse) error {
		if result := event.GetResult(); result != nil {
			results = append(results, result)
		}
		return nil
	})
	return results, err
}

func TestARepeatedRequestAttaches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tool := counting("t", waiting(time.Minute))
		p := start(t, &memory.Ledger{}, "a", tool)
		defer p.kill()
		var all sync.WaitGroup
		for range 3 {
			b := p.batch(t, "run/1", call("c1", "t")) // Each request has its own.
			all.Go(func() {
				results, err := p.run(t.Context(), b)
				assert.NoError(t, err)
				assert.Equal(t, "waited", results[0].GetContent().GetText())
			})
		}
		all.Wait()
		kept, err := p.Attach(t.Context(), "default", "run/1", ref("c1", 0))
		require.NoError(t, err)
		assert.Equal(t, "waited", kept.GetContent().GetText())
		assert.EqualValues(t, 1, tool.calls.Load())
	})
}

func TestAKeyIsGoodForOneContent(t *testing.T) {
	t.Parallel()
	p := start(t, &memory.Ledger{}, "a", counting("t", answering("x")), counting("u", answering("y")))
	defer p.kill()
	_, err := p.run(t.Context(), p.batch(t, "run/1", call("c1", "t")))
	require.NoError(t, err)

	for name, change := range map[string]func(*execute.Batch){
		"the tool":      func(b *execute.Batch) { b.Calls[0] = call("c1", "u") },
		"the arguments": func(b *execute.Batch) { b.Calls[0].ArgumentsJson = `{"n":1}` },
		"the sandbox":   func(b *execute.Batch) { b.Sandboxes = map[string]string{"default": "projects/default/sandboxes/s"} },
		"the bound":     func(b *execute.Batch) { b.MaxOutputBytes = new(int64(1)) },
		"the options":   func(b *execute.Batch) { b.Refs = []*toolv1.ToolRef{{Name: "t", OptionsJson: "{}"}, {Name: "u"}} },
	} {
		b := p.batch(t, "run/1", call("c1", "t"))
		change(b)
		_, err := p.run(t.Context(), b)
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, rpcerr.Reason(err), name)
	}

	same := p.batch(t, "run/1", call("c1", "t"))
	same.Attribution = nil
	_, err = p.run(t.Context(), same)
	require.NoError(t, err)

	other := p.batch(t, "run/1", call("c1", "u"))
	other.Project = "other"
	results, err := p.run(t.Context(), other)
	require.NoError(t, err, "keys of two projects never meet")
	assert.Equal(t, "y", results[0].GetContent().GetText())
}

func TestAKeyUsedForOtherContentHarmsNoSibling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := counting("t", waiting(time.Minute))
		slow.public.Parallel = true
		p := start(t, &memory.Ledger{}, "a", slow)
		defer p.kill()
		_, err := p.run(t.Context(), p.batch(t, "run/1", call("c1", "t")))
		require.NoError(t, err)

		other := call("c1", "t")
		other.ArgumentsJson = `{"n":1}`
		_, err = p.run(t.Context(), p.batch(t, "run/1", other, call("c2", "t")))
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, rpcerr.Reason(err))
		kept, err := p.Attach(t.Context(), "default", "run/1", ref("c2", 1))
		require.NoError(t, err)
		assert.Equal(t, "waited", kept.GetContent().GetText())
	})
}

func TestASiblingOfAFailureIsKeptAsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := counting("slow", waiting(time.Hour))
		broken := counting("broken", func(context.Context, *tool.Call) (*tool.Result, error) {
			time.Sleep(time.Minute)
			return nil, errors.New("bug")
		})
		slow.public.Parallel, broken.public.Parallel = true, true
		p := start(t, &memory.Ledger{}, "a", slow, broken)
		defer p.kill()
		begun := time.Now()
		results, err := p.run(t.Context(), p.batch(t, "run/1", call("c1", "slow"), call("c2", "broken"), call("c3", "slow")))
		require.NoError(t, err)
		require.Len(t, results, 3)
		assert.Equal(t, time.Minute, time.Since(begun))
		kept, err := p.Attach(t.Context(), "default", "run/1", ref("c1", 0))
		require.NoError(t, err)
		assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, kept.GetError().GetType())
		assert.NotEmpty(t, kept.GetNotes())
	})
}

func TestWithAKeyTheBatchOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := counting("first", waiting(time.Minute)), counting("second", answering("done"))
		p := start(t, &memory.Ledger{}, "a", first, second)
		defer p.kill()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_, err := p.run(ctx, p.batch(t, "run/1", call("c1", "first"), call("c2", "second")))
		require.ErrorIs(t, err, context.DeadlineExceeded)

		time.Sleep(2 * time.Minute)
		kept, err := p.Attach(t.Context(), "default", "run/1", ref("c2", 1))
		require.NoError(t, err, "also calls that had not begun")
		assert.Equal(t, "done", kept.GetContent().GetText())
	})
}

func TestWithoutAKeyCallsEndWithTheirCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		p := start(t, &memory.Ledger{}, "a", counting("t", func(ctx context.Context, c *tool.Call) (*tool.Result, error) {
			result, err := waiting(time.Hour)(ctx, c)
			ended <- err
			return result, err
		}))
		defer p.kill()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_, err := p.run(ctx, p.batch(t, "", call("c1", "t"), call("c2", "t")))
		require.Error(t, err)
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		synctest.Wait()
		assert.Empty(t, ended, "the second call does not begin")
	})
}

func TestACallWhoseProcessDiedRunsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &memory.Ledger{}
		slow := counting("t", waiting(time.Minute))
		first := start(t, ledger, "a", slow)
		b := first.batch(t, "run/1", call("c1", "t"))
		go func() {
			_, err := first.run(t.Context(), b)
			assert.Error(t, err)
		}()
		time.Sleep(time.Second)
		first.kill()

		second := start(t, ledger, "b", slow)
		defer second.kill()
		_, err := second.Attach(t.Context(), "default", "run/1", ref("c1", 0))
		require.Error(t, err, "attaching starts nothing")
		results, err := second.run(t.Context(), second.batch(t, "run/1", call("c1", "t")))
		require.NoError(t, err)
		assert.Equal(t, "waited", results[0].GetContent().GetText())
		assert.True(t, results[0].GetTiming().GetReissued())
		assert.EqualValues(t, 2, results[0].GetTiming().GetAttempts())
		assert.EqualValues(t, 2, slow.calls.Load())
	})
}

func TestACallThatMayNotRunTwiceEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &memory.Ledger{}
		payment := counting("pay", waiting(time.Minute))
		payment.public.OnUnknown = toolv1.OnUnknown_ON_UNKNOWN_FAIL
		first := start(t, ledger, "a", payment)
		b := first.batch(t, "run/1", call("c1", "pay"))
		go func() { _, _ = first.run(t.Context(), b) }()
		time.Sleep(time.Second)
		first.kill()

		second := start(t, ledger, "b", payment)
		defer second.kill()
		results, err := second.run(t.Context(), second.batch(t, "run/1", call("c1", "pay"), call("c2", "pay")))
		require.NoError(t, err)
		require.Len(t, results, 1)
		assert.Equal(t, "EFFECT_INDETERMINATE", results[0].GetFailure().GetReason())
		assert.EqualValues(t, 1, payment.calls.Load())
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow, quick := counting("slow", waiting(time.Minute)), counting("quick", waiting(time.Second))
		slow.public.Parallel, quick.public.Parallel = true, true
		p := start(t, &memory.Ledger{}, "a", slow, quick)
		defer p.kill()
		_, err := p.Cancel(t.Context(), "default", "run/1", []*toolv1.CallRef{ref("unseen", 2)})
		require.NoError(t, err)
		go func() {
			time.Sleep(10 * time.Second)
			done, err := p.Cancel(t.Context(), "default", "run/1", []*toolv1.CallRef{ref("c1", 0), ref("c2", 1)})
			assert.NoError(t, err)
			if assert.Len(t, done, 1) {
				assert.Equal(t, "c2", done[0].GetCallId())
			}
		}()
		begun := time.Now()
		results, err := p.run(t.Context(), p.batch(t, "run/1", call("c1", "slow"), call("c2", "quick"), call("unseen", "quick")))
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, time.Since(begun))

		byID := map[string]*toolv1.ToolResult{}
		for _, result := range results {
			byID[result.GetCallId()] = result
		}
		assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, byID["c1"].GetError().GetType())
		assert.Equal(t, "waited", byID["c2"].GetContent().GetText(), "the calls beside it go on")
		assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, byID["unseen"].GetError().GetType())
		assert.EqualValues(t, 1, quick.calls.Load(), "what was cancelled unseen never begins")

		_, err = p.Attach(t.Context(), "default", "run/1", ref("c1", 0))
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED, rpcerr.Reason(err))
	})
}

// TestCallsOfOneIDAreToldApart: providers do send two calls with one id. Each has its own key, so that a later process
// attaches to the call that is done and runs the other again, and each is cancelled and released by its index.
func TestCallsOfOneIDAreToldApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		quick, slow := counting("quick", waiting(time.Second)), counting("slow", waiting(time.Minute))
		quick.public.Parallel, slow.public.Parallel = true, true
		ledger := &memory.Ledger{}
		calls := []*toolv1.ToolCall{call("c1", "quick"), call("c1", "slow"), call("1/c1", "quick")}
		first := start(t, ledger, "a", quick, slow)
		b := first.batch(t, "run/1", calls...)
		go func() {
			_, err := first.run(t.Context(), b)
			assert.Error(t, err)
		}()
		time.Sleep(10 * time.Second)
		first.kill()

		second := start(t, ledger, "b", quick, slow)
		defer second.kill()
		done, err := second.Attach(t.Context(), "default", "run/1", ref("c1", 0))
		require.NoError(t, err)
		assert.Equal(t, "quick", done.GetFunction())
		results, err := second.run(t.Context(), second.batch(t, "run/1", calls...))
		require.NoError(t, err)
		require.Len(t, results, len(calls))
		assert.EqualValues(t, 2, quick.calls.Load(), "what was done is attached to")
		assert.EqualValues(t, 2, slow.calls.Load(), "what was cut short runs again")
		again, err := second.Attach(t.Context(), "default", "run/1", ref("c1", 1))
		require.NoError(t, err)
		assert.Equal(t, "slow", again.GetFunction())
		assert.EqualValues(t, 1, again.GetIndex())

		require.NoError(t, second.Release(t.Context(), "default", "run/1", []*toolv1.CallRef{ref("c1", 1)}))
		_, err = second.Attach(t.Context(), "default", "run/1", ref("c1", 1))
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, rpcerr.Reason(err))
		_, err = second.Attach(t.Context(), "default", "run/1", ref("c1", 0))
		require.NoError(t, err, "the other of that id stays")

		go func() {
			time.Sleep(10 * time.Second)
			_, err := second.Cancel(t.Context(), "default", "run/2", []*toolv1.CallRef{ref("c1", 1)})
			assert.NoError(t, err)
		}()
		results, err = second.run(t.Context(), second.batch(t, "run/2", call("c1", "slow"), call("c1", "slow")))
		require.NoError(t, err)
		require.Len(t, results, 2)
		errorOf := map[int32]toolv1.ToolErrorType{}
		for _, result := range results {
			errorOf[result.GetIndex()] = result.GetError().GetType()
		}
		assert.Equal(t, map[int32]toolv1.ToolErrorType{0: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNSPECIFIED, 1: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED}, errorOf)
	})
}

func TestRelease(t *testing.T) {
	t.Parallel()
	p := start(t, &memory.Ledger{}, "a", counting("t", answering("x")))
	defer p.kill()
	_, err := p.Attach(t.Context(), "default", "run/1", ref("c1", 0))
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, rpcerr.Reason(err))

	_, err = p.run(t.Context(), p.batch(t, "run/1", call("c1", "t")))
	require.NoError(t, err)
	require.NoError(t, p.Release(t.Context(), "default", "run/1", []*toolv1.CallRef{ref("c1", 0), ref("unknown", 1)}))
	_, err = p.Attach(t.Context(), "default", "run/1", ref("c1", 0))
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, rpcerr.Reason(err))
	done, err := p.Cancel(t.Context(), "default", "run/1", []*toolv1.CallRef{ref("c1", 0)})
	require.NoError(t, err)
	require.Len(t, done, 1)
	assert.Equal(t, "c1", done[0].GetCallId())
}

func TestAStoppingServiceSaysSo(t *testing.T) {
	t.Parallel()
	p := start(t, &memory.Ledger{}, "a", counting("t", answering("x")))
	p.kill()
	_, err := p.run(t.Context(), p.batch(t, "run/1", call("c1", "t")))
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE, rpcerr.Reason(err))
	assert.Positive(t, rpcerr.RetryAfter(err))
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	picture := &contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{Media: &contentv1.Media{Source: &contentv1.Media_Uri{Uri: strings.Repeat("x", 3<<20)}}}}}
	for _, c := range []struct {
		name   string
		answer func(context.Context, *tool.Call) (*tool.Result, error)
		check  func(*testing.T, *toolv1.ToolResult)
	}{
		{"no content is an empty text", func(context.Context, *tool.Call) (*tool.Result, error) { return &tool.Result{}, nil }, func(t *testing.T, r *toolv1.ToolResult) {
			assert.Empty(t, r.GetContent().GetText())
			assert.Nil(t, r.GetError())
		}},
		{"arguments come with their defaults", func(_ context.Context, c *tool.Call) (*tool.Result, error) {
			return tool.Text(string(c.Arguments)), nil
		}, func(t *testing.T, r *toolv1.ToolResult) {
			assert.JSONEq(t, `{"n":0}`, r.GetContent().GetText())
			assert.JSONEq(t, `{"n":0}`, r.GetArgumentsJson())
		}},
		{"a panic is a failure that tells no secrets", func(context.Context, *tool.Call) (*tool.Result, error) { panic("secret") }, func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, "INTERNAL", r.GetFailure().GetReason())
			assert.NotContains(t, r.GetFailure().GetMessage(), "secret")
		}},
		{"an error of no kind is a failure that tells no secrets", func(context.Context, *tool.Call) (*tool.Result, error) { return nil, errors.New("secret") }, func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, "INTERNAL", r.GetFailure().GetReason())
			assert.Contains(t, r.GetFailure().GetMessage(), "tool t: internal error; the server's log has the cause")
			assert.NotContains(t, r.GetFailure().GetMessage(), "secret")
		}},
		{"a kind of error keeps its reason", func(context.Context, *tool.Call) (*tool.Result, error) {
			return nil, rpcerr.NotFound("thing", "no such thing")
		}, func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, "RESOURCE_NOT_FOUND", r.GetFailure().GetReason())
			assert.Contains(t, r.GetFailure().GetMessage(), "no such thing")
		}},
		{"a missing sandbox is a failure", func(_ context.Context, c *tool.Call) (*tool.Result, error) {
			_, err := c.Sandbox("")
			return nil, err
		}, func(t *testing.T, r *toolv1.ToolResult) { assert.Contains(t, r.GetFailure().GetMessage(), "sandbox") }},
		{"what was left out before counts", func(context.Context, *tool.Call) (*tool.Result, error) {
			result := tool.Text("ab")
			result.OmittedBytes = 98
			return result, nil
		}, func(t *testing.T, r *toolv1.ToolResult) {
			assert.EqualValues(t, 100, r.GetTruncation().GetRawBytes())
			assert.Contains(t, r.GetContent().GetText(), "<START_TOOL_OUTPUT>\nab\n<END_TOOL_OUTPUT>")
		}},
		{"output beside an error is bounded too", func(context.Context, *tool.Call) (*tool.Result, error) {
			return nil, tool.Timeout(strings.Repeat("x", 20_000))
		}, func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, r.GetError().GetType())
			assert.EqualValues(t, 20_000, r.GetTruncation().GetRawBytes())
		}},
		{"half an image is none", func(context.Context, *tool.Call) (*tool.Result, error) { return tool.Parts(picture), nil }, func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT, r.GetError().GetType())
			assert.Empty(t, r.GetContent().GetText())
		}},
		{"text that is not UTF-8 becomes so", answering("a\xffb"), func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, "a\ufffdb", r.GetContent().GetText())
		}},
		{"changes of the store travel with the result", func(_ context.Context, c *tool.Call) (*tool.Result, error) {
			value, _ := c.Store.Get("plan")
			return tool.Text(string(value)), errors.Join(c.Store.Set("plan", json.RawMessage(`2`)))
		}, func(t *testing.T, r *toolv1.ToolResult) {
			assert.Equal(t, "1", r.GetContent().GetText())
			assert.Equal(t, "2", r.GetStoreChanges()[0].GetValueJson())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			made := counting("t", c.answer)
			made.public.StoreKeys = []string{"plan"}
			p := start(t, &memory.Ledger{}, "a", made)
			defer p.kill()
			for _, requestID := range []string{"", "run/1"} {
				b := p.batch(t, requestID, call("c1", "t"))
				b.Store = map[string]string{"plan": "1", "other": "3"}
				results, err := p.run(t.Context(), b)
				require.NoError(t, err)
				require.Len(t, results, 1)
				c.check(t, results[0])
				assert.NotNil(t, results[0].GetTiming().GetEndTime())
			}
		})
	}
}

func TestTimeoutOfTheBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, &memory.Ledger{}, "a", counting("t", waiting(24*time.Hour)))
		defer p.kill()
		for timeout, bound := range map[time.Duration]time.Duration{time.Minute: time.Minute, 0: time.Hour} {
			b := p.batch(t, "", call("c1", "t"))
			b.Timeout = timeout
			begun := time.Now()
			results, err := p.run(t.Context(), b)
			require.NoError(t, err)
			assert.Equal(t, bound, time.Since(begun))
			assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, results[0].GetError().GetType())
			assert.Equal(t, bound, results[0].GetTiming().GetWorking().AsDuration())
		}
	})
}

func TestCallsWithOneIDAreToldApartByTheirPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		numbered := counting("t", func(_ context.Context, c *tool.Call) (*tool.Result, error) {
			var a struct{ N int }
			err := json.Unmarshal(c.Arguments, &a)
			time.Sleep(time.Duration(10-a.N) * time.Second) // later calls finish earlier
			return tool.Text(string(c.Arguments)), err
		})
		numbered.public.Parallel = true
		p := start(t, &memory.Ledger{}, "a", numbered)
		defer p.kill()
		same := func(n string) *toolv1.ToolCall {
			return &toolv1.ToolCall{Id: "same", Function: "t", ArgumentsJson: `{"n":` + n + `}`}
		}
		for _, requestID := range []string{"", "run/1", "run/1"} {
			results, err := p.run(t.Context(), p.batch(t, requestID, same("1"), same("2"), same("3")))
			require.NoError(t, err)
			require.Len(t, results, 3)
			texts := map[int32]string{}
			for _, result := range results {
				texts[result.GetIndex()] = result.GetContent().GetText()
			}
			assert.Equal(t, map[int32]string{0: `{"n":1}`, 1: `{"n":2}`, 2: `{"n":3}`}, texts)
		}
		_, err := p.run(t.Context(), p.batch(t, "run/1", call("new", "t"), same("1")))
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, rpcerr.Reason(err), "a repeated request has its calls at the same places")
	})
}

func TestLongIDsMakeProperKeys(t *testing.T) {
	t.Parallel()
	ledger := &memory.Ledger{}
	p := start(t, ledger, "a", counting("t", answering("x")))
	defer p.kill()
	request, id := strings.Repeat("r", 120), strings.Repeat("c", 300)
	_, err := p.run(t.Context(), p.batch(t, request, call(id, "t"), call(id+"d", "t")))
	require.NoError(t, err)
	kept, err := p.Attach(t.Context(), "default", request, ref(id, 0))
	require.NoError(t, err)
	assert.Equal(t, id, kept.GetCallId())
}

func TestAnEmptyParseErrorIsNone(t *testing.T) {
	t.Parallel()
	p := start(t, &memory.Ledger{}, "a", counting("add", answering("done")))
	defer p.kill()
	empty, given := call("c1", "add"), call("c2", "add")
	empty.ParseError, given.ParseError = new(""), new("no JSON")
	results, err := p.run(t.Context(), p.batch(t, "", empty, given))
	require.NoError(t, err)
	require.Len(t, results, 2)
	for _, result := range results {
		if result.GetCallId() == "c1" {
			assert.Nil(t, result.GetError())
		} else {
			assert.Equal(t, "no JSON", result.GetError().GetMessage())
		}
	}
}

func TestCallsOfTheCallersToolsAreRefused(t *testing.T) {
	t.Parallel()
	p := start(t, &memory.Ledger{}, "a")
	defer p.kill()
	p.refs = []*toolv1.ToolRef{{Name: "submit", Definition: &toolv1.ToolDefinition{
		CallerRuns: true, Info: &toolv1.ToolInfo{Name: "submit", Description: "Submits.", ParametersJson: `{"type":"object"}`},
	}}}
	_, err := p.run(t.Context(), p.batch(t, "", call("c1", "submit")))
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, rpcerr.Reason(err))
	require.ErrorContains(t, err, "submit")
}
