package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// outcomes returns the calls whose outcomes are in the journal, in its order.
func (f *fleet) outcomes(name string) (ids []string) {
	for e, err := range f.Events(name) {
		require.NoError(f.T, err)
		if o := e.GetToolOutcome(); o != nil {
			ids = append(ids, o.GetCallId())
		}
	}
	return ids
}

func TestParallelResultsAreJournaledAsTheyCome(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(
		servicetest.Says("go", call("slow", "wait", `{}`), call("quick", "quick", `{}`), call("serial", "serial", `{}`)),
		servicetest.Says("end"),
	)
	let := make(chan struct{})
	var head string
	f.Tools.Tools["wait"] = servicetest.Tool{Parallel: true, Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		waittest.Hold(t, let)
		return servicetest.Text("slow"), nil
	}}
	f.Tools.Tools["quick"] = servicetest.Tool{Parallel: true, Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return servicetest.Text("quick"), nil
	}}
	f.Tools.Tools["serial"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		assert.Equal(t, []string{"quick", "slow"}, f.outcomes(head), "a call that may not run beside others waits for all before it")
		return servicetest.Text("serial"), nil
	}}
	head = f.Create(spec(step("generate", "", "wait", "quick", "serial"))).Name
	f.Until(head, func(*run.State) bool { return len(f.outcomes(head)) == 1 })
	close(let)
	got := f.Finish(head)
	assert.Equal(t, []string{"quick", "slow", "serial"}, f.outcomes(head))
	assert.Equal(t, []string{"U:Start.", "A:go", "T:slow", "T:quick", "T:serial", "A:end"}, texts(got.Messages()), "messages stand in the order of the calls")
}

// Two calls with one id in one message are two calls: each gets its own result, whichever comes first.
func TestCallsWithOneIDAreToldApart(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(
		servicetest.Says("go", call("same", "first", `{}`), call("same", "second", `{}`)),
		servicetest.Says("end"),
	)
	over := make(chan struct{})
	f.Tools.Tools["first"] = servicetest.Tool{Parallel: true, Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		waittest.Hold(t, over)
		return servicetest.Text("of the first"), nil
	}}
	f.Tools.Tools["second"] = servicetest.Tool{Parallel: true, Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return servicetest.Text("of the second"), nil
	}}
	head := f.Create(spec(step("generate", "", "first", "second"))).Name
	f.Until(head, func(*run.State) bool { return len(f.outcomes(head)) == 1 })
	close(over)
	got := f.Finish(head)
	assert.Equal(t, []string{"U:Start.", "A:go", "T:of the first", "T:of the second", "A:end"}, texts(got.Messages()))
}

func TestFatalToolFailureEndsTheRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "broken", `{}`), call("c2", "hang", `{}`), call("c3", "later", `{}`)))
	// The failure waits for the other call to start: a call that has not started when its message fails never does.
	started, stopped := make(chan struct{}), make(chan struct{})
	f.Tools.Tools["broken"] = servicetest.Tool{Parallel: true, Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		waittest.Hold(t, started)
		return &toolv1.ToolResult{Failure: &toolv1.ToolFailure{Reason: "INTERNAL", Message: "bug"}}, nil
	}}
	f.Tools.Tools["hang"] = servicetest.Tool{Parallel: true, Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
		close(started)
		<-ctx.Done()
		close(stopped)
		return nil, ctx.Err()
	}}
	f.Tools.Tools["later"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		t.Error("a stage after a failure")
		return servicetest.Text(""), nil
	}}
	got := f.Finish(f.Create(spec(step("generate", "", "broken", "hang", "later"))).Name)
	waittest.For(t, stopped, "the cancel of the call that hangs")
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, got.Phase)
	assert.Equal(t, "bug", got.Error.GetMessage())
	assert.Equal(t, []string{"U:Start.", "A:go"}, texts(got.Messages()))
}

func TestFailFast(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(func() *modelv1.ModelOutput {
		o := servicetest.Say("go", call("c1", "fail", `{}`), call("c2", "fail", `{}`), call("c3", "other", `{}`))
		o.GetChoices()[0].GetMessage().MetadataJson = `{"tool_calls_fail_fast": ["fail"]}`
		return o
	}, servicetest.Says("end"))
	f.Tools.Tools["fail"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return &toolv1.ToolResult{Error: &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: "no"}}, nil
	}}
	f.Tools.Tools["other"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return servicetest.Text("ran"), nil
	}}
	got := f.Finish(f.Create(spec(step("generate", "", "fail", "other"))).Name)
	assert.Equal(t, []string{"U:Start.", "A:go", "T:!unknown", "T:!cancelled", "T:ran", "A:end"}, texts(got.Messages()))
	assert.Equal(t, 2, f.Tools.Total())
}

func TestReviewDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decision toolv1.ReviewDecision
		phase    agentv1.RunState
		limit    string
		reason   string
	}{
		"terminate": {toolv1.ReviewDecision_REVIEW_DECISION_TERMINATE, agentv1.RunState_RUN_STATE_SUCCEEDED, "operator", ""},
		"ask":       {toolv1.ReviewDecision_REVIEW_DECISION_ASK, agentv1.RunState_RUN_STATE_FAILED, "", "NOT_BUILT_YET"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "any", `{}`)))
			f.Tools.Tools["any"] = servicetest.Tool{}
			f.Tools.Review = func(r *toolv1.ReviewToolsRequest) ([]*toolv1.ToolReview, error) {
				return []*toolv1.ToolReview{{CallId: "c1", Decision: c.decision, Call: r.GetCalls()[0]}}, nil
			}
			got := f.Finish(f.Create(spec(step("generate", "", "any"))).Name)
			assert.Equal(t, c.phase, got.Phase)
			assert.Equal(t, c.limit, enum.Word(got.Limit.GetType()))
			assert.Equal(t, c.reason, got.Error.GetReason())
			assert.Zero(t, f.Tools.Total())
		})
	}
}

// TestReviewChangesTheCall uses a review that coerces arguments: the coerced arguments are executed and journaled.
func TestReviewChangesTheCall(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "add", `{"x": "1"}`)), servicetest.Says("end"))
	f.Tools.Tools["add"] = servicetest.Tool{Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		assert.InDelta(t, 1.0, c.Arguments["x"], 0)
		return servicetest.Text("1"), nil
	}}
	f.Tools.Review = func(*toolv1.ReviewToolsRequest) ([]*toolv1.ToolReview, error) {
		return []*toolv1.ToolReview{{CallId: "c1", Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN, Call: call("c1", "add", `{"x": 1}`)}}, nil
	}
	name := f.Create(spec(step("generate", "", "add"))).Name
	f.Finish(name)
	for e, err := range f.Events(name) {
		require.NoError(t, err)
		if i := e.GetToolIntent(); i != nil {
			assert.Equal(t, `{"x": 1}`, i.GetContent().GetArgumentsJson())
		}
	}
}

func TestReviewIsAskedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "add", `{}`)), servicetest.Says("end"))
	f.Tools.Tools["add"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) { return servicetest.Text("1"), nil }}
	asked := 0
	f.Tools.Review = func(r *toolv1.ReviewToolsRequest) ([]*toolv1.ToolReview, error) {
		if asked++; asked == 1 {
			return nil, rpcerr.FromStatus(status.Error(codes.Unavailable, "away"))
		}
		return []*toolv1.ToolReview{{CallId: "c1", Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN, Call: r.GetCalls()[0]}}, nil
	}
	got := f.Finish(f.Create(spec(step("generate", "", "add"))).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, 2, asked)
	assert.Equal(t, 2, f.Models.Total())
}

// TestAReviewThatCannotBeHadNow has toolexec away while calls are to be reviewed: they are reviewed and run once it is
// back, and nothing is done twice.
func TestAReviewThatCannotBeHadNow(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"generate", "react"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "add", `{}`)), servicetest.Says("end", call("c2", "submit", `{"answer": "3"}`)), servicetest.Says("end"))
			f.Tools.Tools["add"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) { return servicetest.Text("3"), nil }}
			asked := 0
			f.Tools.Review = func(r *toolv1.ReviewToolsRequest) ([]*toolv1.ToolReview, error) {
				if asked++; asked == 1 {
					return nil, rpcerr.ServiceUnavailable("toolexec", time.Second, "away")
				}
				decision := toolv1.ReviewDecision_REVIEW_DECISION_RUN
				if r.GetCalls()[0].GetFunction() == "submit" {
					decision = toolv1.ReviewDecision_REVIEW_DECISION_CALLER
				}
				return []*toolv1.ToolReview{{CallId: r.GetCalls()[0].GetId(), Decision: decision, Call: r.GetCalls()[0]}}, nil
			}
			one := step(agent, "", "add")
			got := f.Finish(f.Create(spec(one)).Name)
			assert.Equal(t, "c1", f.outcomes(got.Name)[0])
			said := texts(got.Messages())
			assert.Contains(t, said, "T:3")
			n := 0
			for _, text := range said {
				if text == "A:go" {
					n++
				}
			}
			assert.Equal(t, 1, n, "%v", said)
		})
	}
}

// A lost sandbox is reported to the model, which continues, and is noted for people.
func TestALostSandboxIsNoted(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(
		servicetest.Says("go", call("a", "shell", `{}`)),
		servicetest.Says("again", call("b", "shell", `{}`)),
		servicetest.Says("end"),
	)
	calls := 0
	f.Tools.Tools["shell"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		calls++
		return &toolv1.ToolResult{Error: &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, Message: fmt.Sprint("lost at call ", calls)}}, nil
	}}
	got := f.Finish(f.Create(spec(step("generate", "", "shell"))).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, "lost at call 1", got.View(false).GetSandboxFault(), "where it began")
}
