package engine_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker/workertest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/agenttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/corpustest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/workers"
)

// shape is a run that is recorded once. A recorded journal stays as it is; another shape gets a name of its own.
type shape struct {
	agents []agent.Definition
	// play has an engine drive a run and returns its name.
	play func(f *fleet) string
}

// shapes are runs of every kind, by the name of their journal.
var shapes = map[string]shape{
	// Two sandboxes, steps, parallel tools and one that changes the store, refused calls, an intermediate round of
	// scoring, commands and texts that judge.
	"whole-life": {play: func(f *fleet) string {
		s := wholeLife(f)
		return f.start().ended(s)
	}},
	// A turn that is cut, and a call that is stopped.
	"operated": {play: func(f *fleet) string {
		s := operatedLife(f)
		return f.start().ended(s)
	}},
	// Effects that a program asks for beside those of the agent: a model call, a command, a tool call, one that is
	// refused.
	"outside": {play: func(f *fleet) string {
		s := assistedLife(f)
		return f.start().ended(s)
	}},
	// A tool call from outside that is stopped by its id, and a model call that ends with its agent.
	"outside-stopped": {play: func(f *fleet) string {
		let, begun := make(chan struct{}), make(chan struct{}, 1)
		f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			if r.GetAttribution().GetPurpose() == run.PurposeOutside {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			begun <- struct{}{}
			<-let
			return servicetest.Say("Done."), nil
		}
		f.Tools.Tools["hang"] = servicetest.Tool{Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		name := f.start().Create(spec(step("generate", "", "hang"))).Name
		<-begun
		require.NoError(f.T, f.leave(name, outsideTool("k1", "hang"), outsideCall("k2")))
		f.Engine.Wake(name)
		f.Until(name, func(s *run.State) bool { return len(s.Open) == 3 })
		f.send(name, "stop/1", &agentv1.CancelCallRequest{CallId: "k1"})
		f.Until(name, func(s *run.State) bool { return len(s.Open) == 2 })
		close(let)
		f.Finish(name)
		return name
	}},
	// A scorer that asks a model: after each attempt and at the end, once refused by its provider.
	"graded-attempts": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(
			servicetest.Says("", call("c1", "submit", `{"answer": "41"}`)), servicetest.Says("", call("c2", "submit", `{"answer": "42"}`)),
		)
		s := graded(f, step("react", `{"attempts": 2, "prompt": null}`), verdict("I"), verdict("C"))
		return f.start().ended(s)
	}},
	// A run of a sample that waits for a decision when its replica restarts, and is resumed.
	"sample-resumed": {play: func(f *fleet) string {
		f.refusedOnce(lost())
		s := spec(step("generate", ""))
		s.Attribution = &effectv1.Attribution{Eval: "projects/p/evals/e", Sample: "1", Epoch: 2}
		s.Scorers, s.Target = []*agentv1.ScorerRef{{Name: "includes"}}, &agentv1.Target{Values: []string{"ok"}}
		name := f.start().Create(s).Name
		f.Until(name, awaitsDecision)
		f.End()
		f.start()
		f.send(name, "resume/1", &agentv1.ResumeRunRequest{})
		f.Finish(name)
		return name
	}},
	"model": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("Done.", call("c1", "submit", `{"answer": "42"}`)))
		f.Models.Failed = []*modelv1.FailedAttempt{{Error: "the provider says no", Status: 503}}
		s := spec(step("system_message", `{"template": "Be brief, {name}."}`), step("prompt_template", `{"template": "{prompt} Now."}`), step("react", `{"model": "thinker"}`))
		s.MetadataJson = `{"name": "Ada"}`
		s.ModelRoles = map[string]*agentv1.ModelRef{"thinker": {Model: "mockllm/other"}}
		return f.start().ended(s)
	}},
	"choices": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("I think.\n\nANSWER: B"))
		s := spec(step("multiple_choice", `{"cot": true}`))
		s.Choices, s.Target = []string{"a", "b"}, &agentv1.Target{Values: []string{"B"}}
		s.Scorers = []*agentv1.ScorerRef{{Name: "choice"}}
		return f.start().ended(s)
	}},
	"history-trimmed": {play: func(f *fleet) string {
		full := func() *modelv1.ModelOutput {
			o := servicetest.Say("")
			o.GetChoices()[0].StopReason = modelv1.StopReason_STOP_REASON_MODEL_LENGTH
			return o
		}
		f.Tools.Tools["noop"] = says("done")
		f.Models.Answer = servicetest.ByTurn(
			servicetest.Says("one", call("c1", "noop", `{}`)), servicetest.Says("two", call("c2", "noop", `{}`)), full,
			servicetest.Says("", call("c3", "submit", `{"answer": "42"}`)),
		)
		return f.start().ended(spec(step("react", `{"truncation": "auto"}`, "noop")))
	}},

	"compacted-summary": {play: func(f *fleet) string {
		return f.start().ended(longLife(f, `{"strategy": "auto", "threshold": 350}`))
	}},
	"compacted-native": {play: func(f *fleet) string {
		f.Models.Shorten = func(*modelv1.CompactRequest) ([]*modelv1.ChatMessage, error) {
			return []*modelv1.ChatMessage{chat.Assistant("sealed")}, nil
		}
		return f.start().ended(longLife(f, `{"strategy": "native", "threshold": 350}`))
	}},
	"compacted-edit": {play: func(f *fleet) string {
		return f.start().ended(longLife(f, `{"strategy": "edit", "threshold": 350, "keep_tool_uses": 1}`))
	}},
	"told-to-save-notes": {play: func(f *fleet) string { return f.start().ended(notedLife(f)) }},

	"tool-errors": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(func() *modelv1.ModelOutput {
			o := servicetest.Say("go", call("c1", "late", `{}`), call("c2", "late", `{}`), call("c3", "lost", `{}`), call("c3", "fine", `{}`))
			o.GetChoices()[0].GetMessage().MetadataJson = `{"tool_calls_fail_fast": ["late"]}`
			return o
		}, servicetest.Says("end"))
		f.Tools.Tools["late"] = fails(toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, "it took too long")
		f.Tools.Tools["lost"] = fails(toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, "the sandbox is lost")
		f.Tools.Tools["fine"] = says("fine")
		return f.start().ended(spec(step("generate", "", "late", "lost", "fine")))
	}},
	"tool-failure": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "broken", `{}`), call("c2", "hang", `{}`), call("c3", "later", `{}`)))
		started := make(chan struct{})
		f.Tools.Tools["broken"] = servicetest.Tool{Parallel: true, Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
			<-started
			return &toolv1.ToolResult{Failure: &toolv1.ToolFailure{Reason: "INTERNAL", Message: "bug"}}, nil
		}}
		f.Tools.Tools["hang"] = servicetest.Tool{Parallel: true, Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
			close(started)
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		f.Tools.Tools["later"] = says("never")
		return f.start().ended(spec(step("generate", "", "broken", "hang", "later")))
	}},
	"tool-changed": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "noop", `{"x": "1"}`)), servicetest.Says("go", call("c2", "noop", `{}`)))
		f.Tools.Tools["noop"] = says("done")
		f.Tools.Review = func(r *toolv1.ReviewToolsRequest) ([]*toolv1.ToolReview, error) {
			c := r.GetCalls()[0]
			if c.GetId() == "c2" {
				return []*toolv1.ToolReview{{CallId: "c2", Decision: toolv1.ReviewDecision_REVIEW_DECISION_TERMINATE, Call: c, Explanation: "enough"}}, nil
			}
			return []*toolv1.ToolReview{{CallId: "c1", Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN, Call: call("c1", "noop", `{"x": 1}`), Approver: "auto"}}, nil
		}
		return f.start().ended(spec(step("generate", "", "noop")))
	}},

	"limit-messages": limited(&agentv1.RunLimits{Messages: new(int32(4))}),
	"limit-tokens":   limited(&agentv1.RunLimits{Tokens: new(int64(20)), TokenFormula: "input + output"}),
	"limit-turns":    limited(&agentv1.RunLimits{Turns: new(int32(2))}),
	"limit-cost":     limited(&agentv1.RunLimits{Cost: new(0.15)}),
	"limit-time":     limited(&agentv1.RunLimits{Time: durationpb.New(time.Second)}),
	"limit-working":  limited(&agentv1.RunLimits{WorkingTime: durationpb.New(time.Second)}),
	"limits-retuned": {play: func(f *fleet) string {
		name := f.hanging(&agentv1.RunLimits{Turns: new(int32(5))})
		f.send(name, "limits/1", &agentv1.RetuneLimitsRequest{Limits: &agentv1.RunLimits{Tokens: new(int64(1000))}, Etag: "1"})
		f.send(name, "limits/2", &agentv1.RetuneLimitsRequest{
			Limits: &agentv1.RunLimits{Time: durationpb.New(time.Second)}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"time", "turns"}},
		})
		f.Finish(name)
		return name
	}},

	"error-of-a-provider": {play: func(f *fleet) string {
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			return nil, rpcerr.ProviderUnavailable("openai", 503, time.Second, "the provider says no")
		}
		return f.start().ended(spec(step("generate", "")))
	}},
	"error-of-a-rate-limit": {play: func(f *fleet) string {
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			return nil, rpcerr.ProviderRateLimited("openai", 429, time.Second, "slow down")
		}
		return f.start().ended(spec(step("generate", "")))
	}},
	"error-scored": {play: func(f *fleet) string {
		s := spec(step("multiple_choice", ""))
		s.Choices, s.ScoreOnError = []string{"a", "b"}, true
		s.Input = []*modelv1.ChatMessage{{Role: modelv1.Role_ROLE_SYSTEM, Content: chat.TextContent("Be brief.")}}
		s.Scorers, s.Target = []*agentv1.ScorerRef{{Name: "includes"}}, &agentv1.Target{Values: []string{"x"}}
		return f.start().ended(s)
	}},
	"error-of-a-scorer": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("go"))
		s := spec(step("generate", ""))
		s.Choices, s.Target = []string{"a", "b"}, &agentv1.Target{Values: []string{"Z"}}
		s.Scorers = []*agentv1.ScorerRef{{Name: "choice"}}
		return f.start().ended(s)
	}},
	"scoring-too-long": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("go"))
		f.Sandboxes.Run = func(ctx context.Context, _ *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s := spec(step("generate", ""))
		s.Limits = &agentv1.RunLimits{Time: durationpb.New(time.Second)}
		s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
		s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"command": "sleep 1000"}`}}
		return f.start().ended(s)
	}},

	"restart": {play: func(f *fleet) string {
		name, let := f.holding(&agentv1.RunLimits{Time: durationpb.New(time.Hour)})
		f.End()
		time.Sleep(10 * time.Minute)
		f.start()
		time.Sleep(time.Minute)
		close(let)
		f.Finish(name)
		return name
	}},
	"takeover": {play: func(f *fleet) string {
		f.Replica.Name = "one"
		silent := &silence{}
		after := f.silenced(silent)
		name, let := f.holding(nil)
		one := f.Stop
		defer one()
		silent.dead.Store(true)
		after()
		f.Replica.Name = "two"
		f.start()
		time.Sleep(time.Minute)
		close(let)
		f.Finish(name)
		return name
	}},
	"outage": {play: func(f *fleet) string {
		away := &silence{fails: rpcerr.StoreUnavailable("test", time.Second, "the store is away")}
		f.silenced(away)
		f.Wrap = func(store journal.Store) journal.Store { return &awayStore{Store: store, silence: away} }
		name, let := f.holding(&agentv1.RunLimits{Time: durationpb.New(time.Hour)})
		away.dead.Store(true)
		time.Sleep(time.Minute)
		close(let)
		time.Sleep(time.Minute)
		away.dead.Store(false)
		f.Finish(name)
		return name
	}},
	"base": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("Hello."))
		trunk := f.start().ended(spec(step("generate", "")))
		head, err := f.Store.Open(f.T.Context(), trunk)
		require.NoError(f.T, err)
		const name = "projects/p/runs/branch"
		handed := run.NewEvent(&agentv1.OwnerChanged{Owner: f.Engine.Replica(), Reason: agentv1.OwnerChangeReason_OWNER_CHANGE_REASON_HANDOVER})
		handed.Seq, handed.Epoch, handed.Critical, handed.Time, handed.Actor, handed.Id = 6, 1, true, timestamppb.Now(), "system", "6"
		made, _, err := f.Store.Create(f.T.Context(), journal.Creation{
			Name: name, Owner: f.Engine.Replica(), Base: journal.Base{Ref: head.Ref, Seq: 5}, Entries: []journal.Entry{{Event: handed}}, Row: journal.Row{Kind: journal.KindRun},
		})
		require.NoError(f.T, err)
		f.Engine.Drive(made, "")
		f.Finish(name)
		return name
	}},

	"hold": {play: func(f *fleet) string {
		name, let := f.holding(nil)
		f.send(name, "hold/1", &agentv1.HoldRunRequest{Reason: "a look"})
		f.Until(name, func(s *run.State) bool { return s.Held })
		close(let)
		f.Until(name, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_HOLD })
		f.send(name, "resume/1", &agentv1.ResumeRunRequest{})
		f.Finish(name)
		return name
	}},
	"messages": {play: func(f *fleet) string {
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("go on", call("c1", "noop", `{}`)), servicetest.Says("end"))
		let, begun := make(chan struct{}), make(chan struct{})
		f.Tools.Tools["noop"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
			close(begun)
			<-let
			return servicetest.Text("done"), nil
		}}
		name := f.start().Create(spec(step("generate", "", "noop"))).Name
		<-begun
		for id, text := range map[string]string{"message/1": "be brief", "message/2": "and quick"} {
			before := f.State(name).Seq
			f.send(name, id, &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user(text)}})
			f.Until(name, func(s *run.State) bool { return s.Seq > before })
		}
		f.send(name, "message/3", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("hello?")}, Span: "77"})
		f.Until(name, func(s *run.State) bool { return s.Seq > 12 || s.Finished || len(s.Posted) == 2 })
		close(let)
		f.Finish(name)
		return name
	}},
	"cancel":          cancelled(agentv1.CancelMode_CANCEL_MODE_UNSPECIFIED),
	"cancel-to-score": cancelled(agentv1.CancelMode_CANCEL_MODE_SCORE),
	"cancel-as-error": cancelled(agentv1.CancelMode_CANCEL_MODE_ERROR),

	"wait-capacity": waiting(rpcerr.ConnectionQueueFull("openai/default", time.Second, "full")),
	"wait-budget":   waiting(rpcerr.BudgetExhausted("projects/p", time.Second, "spent")),
	"wait-worker": {play: func(f *fleet) string {
		there := f.unserved()
		name := f.start().Create(spec(step("generate", "", "weather"))).Name
		f.Until(name, waitsForWeather)
		there.Store(true)
		f.comes("projects/p", "weather")
		f.Finish(name)
		return name
	}},
	"wait-decision": {play: func(f *fleet) string {
		f.refusedOnce(lost())
		s := spec(step("generate", ""))
		s.Limits = &agentv1.RunLimits{Time: durationpb.New(time.Hour)}
		name := f.start().Create(s).Name
		f.Until(name, awaitsDecision)
		time.Sleep(2 * time.Hour)
		f.send(name, "resume/1", &agentv1.ResumeRunRequest{})
		f.Finish(name)
		return name
	}},
	"wait-room": {play: func(f *fleet) string {
		var room atomic.Bool
		f.Lack = func() string {
			if room.Load() {
				return ""
			}
			return "the disk is nearly full"
		}
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
		name := f.start().Create(spec(step("generate", ""))).Name
		f.Until(name, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_DISK })
		room.Store(true)
		f.Finish(name)
		return name
	}},

	"sandbox": {play: func(f *fleet) string {
		var once atomic.Bool
		f.Sandboxes.Refuse = func(r *sandboxv1.CreateSandboxRequest) error {
			if !r.GetValidateOnly() && once.CompareAndSwap(false, true) {
				return rpcerr.SandboxQuota("sandboxes", 1, time.Second, "full")
			}
			return nil
		}
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
		s := spec(step("generate", ""))
		s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {Setup: "make tools", SetupTimeout: durationpb.New(time.Minute), Env: map[string]string{"A": "1"}}}
		s.KeepSandboxes = true
		return f.start().ended(s)
	}},
	"sandbox-setup-failed": {play: func(f *fleet) string {
		f.Sandboxes.Refuse = func(r *sandboxv1.CreateSandboxRequest) error {
			if r.GetValidateOnly() {
				return nil
			}
			return rpcerr.SandboxSetupFailed(1, false, "the set-up script ended with 1")
		}
		s := spec(step("generate", ""))
		s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {Setup: "false"}}
		return f.start().ended(s)
	}},

	"workers": {play: func(f *fleet) string {
		stop := f.serves(map[string]string{
			workers.Continue: `{"conversation": {"messages": [{"role": "ROLE_USER", "content": {"text": "Begin anew."}}]}}`,
			workers.Scorer:   `{"score": {"value": {"text": "C"}, "explanation": "good"}, "store_changes": [{"key": "seen", "value_json": "true"}]}`,
		})
		defer stop()
		f.Models.Answer = servicetest.ByTurn(servicetest.Says("first"), servicetest.Says("", call("c1", "submit", `{"answer": "42"}`)))
		s := spec(step("react", `{"on_continue": {"worker": "w"}}`))
		s.Scorers = []*agentv1.ScorerRef{{Name: "w", ParamsJson: `{"strict": true}`}}
		return f.start().ended(s)
	}},

	"children": {agents: []agent.Definition{agenttest.Delegates(withTool("one", "left"), withTool("two", "right"))}, play: func(f *fleet) string {
		f.Tools.Tools["left"], f.Tools.Tools["right"] = says("left"), says("right")
		f.answerTasks(map[string][]func() *modelv1.ModelOutput{
			"one": {servicetest.Says("", call("c1", "look", `{}`)), servicetest.Says("one is done")},
			"two": {servicetest.Says("", call("c2", "look", `{}`)), servicetest.Says("two is done")},
		})
		return f.start().ended(spec(step("delegates", "")))
	}},
	"children-limited": {agents: []agent.Definition{agenttest.Delegates(
		bounded("turns", &agentv1.RunLimits{Turns: new(int32(1))}), bounded("time", &agentv1.RunLimits{Time: durationpb.New(time.Second)}),
	)}, play: func(f *fleet) string {
		f.Tools.Tools["hang"] = servicetest.Tool{Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		f.Tools.Tools["noop"] = says("done")
		f.answerTasks(map[string][]func() *modelv1.ModelOutput{
			"turns": {servicetest.Says("", call("c1", "noop", `{}`)), servicetest.Says("too late")}, "time": {servicetest.Says("", call("c2", "hang", `{}`))},
		})
		return f.start().ended(spec(step("delegates", "", "noop", "hang")))
	}},
	"children-cancelled": {agents: []agent.Definition{agenttest.Delegates(agenttest.Task("generate", "one"), agenttest.Task("listens", "two")), agenttest.Listens()}, play: func(f *fleet) string {
		name := f.hanging(nil, "delegates")
		f.send(name, "cancel/1", &agentv1.CancelRunRequest{Reason: "enough"})
		f.Finish(name)
		return name
	}},
	"children-listen": {agents: []agent.Definition{agenttest.Delegates(agenttest.Task("listens", "one"), agenttest.Task("listens", "two")), agenttest.Listens()}, play: func(f *fleet) string {
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			return servicetest.Say("heard"), nil
		}
		name := f.start().Create(spec(step("delegates", ""))).Name
		for range 2 {
			got := f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
			last := got.Frames()[len(got.Frames())-1].Span
			f.send(name, "message/"+last, &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("go")}, Span: last})
			f.Until(name, func(s *run.State) bool { return s.At(last) == nil })
		}
		f.Finish(name)
		return name
	}},
}

// limited is a run that continues until a limit ends it, and is then scored.
func limited(limits *agentv1.RunLimits) shape {
	return shape{play: func(f *fleet) string {
		f.Tools.Tools["work"] = servicetest.Tool{Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(400 * time.Millisecond):
				r := servicetest.Text("done")
				r.Timing = &effectv1.Timing{Working: durationpb.New(400 * time.Millisecond), Attempts: 1}
				return r, nil
			}
		}}
		f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
			o := servicetest.Say("go", call("c", "work", `{}`))
			o.Usage.TotalCost = new(0.1)
			return o, nil
		}
		s := spec(step("generate", "", "work"))
		s.Limits, s.Scorers, s.Target = limits, []*agentv1.ScorerRef{{Name: "includes"}}, &agentv1.Target{Values: []string{"go"}}
		return f.start().ended(s)
	}}
}

// cancelled is a run that is cancelled while its model is asked.
func cancelled(mode agentv1.CancelMode) shape {
	return shape{play: func(f *fleet) string {
		name := f.hanging(nil)
		f.send(name, "cancel/1", &agentv1.CancelRunRequest{Mode: mode, Reason: "enough"})
		f.Finish(name)
		return name
	}}
}

// waiting is a run whose first model call is refused.
func waiting(no error) shape {
	return shape{play: func(f *fleet) string {
		f.refusedOnce(no)
		return f.start().ended(spec(step("generate", "")))
	}}
}

func says(text string) servicetest.Tool {
	return servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return servicetest.Text(text), nil
	}}
}

func fails(kind toolv1.ToolErrorType, message string) servicetest.Tool {
	return servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return &toolv1.ToolResult{Error: &toolv1.ToolCallError{Type: kind, Message: message}}, nil
	}}
}

// withTool is a task whose agent has a tool of its own, by the name look.
func withTool(name, tool string) agent.Start {
	start := agenttest.Task("generate", name)
	start.Agent.Tools = []*toolv1.ToolRef{{Name: tool, Rename: "look"}}
	start.Tools = []*toolv1.ToolDefinition{{Info: &toolv1.ToolInfo{Name: "look", Description: "Looks " + tool, ParametersJson: `{"type": "object"}`}}}
	return start
}

// bounded is a task with bounds of its own.
func bounded(name string, limits *agentv1.RunLimits) agent.Start {
	start := task(name, "noop", "hang")
	start.Limits = limits
	return start
}

func (f *fleet) ended(s *agentv1.RunSpec) string { return f.Finish(f.Create(s).Name).Name }

func (f *fleet) refusedOnce(no error) {
	var asked atomic.Bool
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if asked.CompareAndSwap(false, true) {
			return nil, no
		}
		return servicetest.Say("ok"), nil
	}
}

// hanging begins a run whose model never answers.
func (f *fleet) hanging(limits *agentv1.RunLimits, agents ...string) string {
	begun := make(chan struct{}, 1)
	f.Models.Answer = hanging(begun)
	agents = append(agents, "generate")
	s := spec(step(agents[0], ""))
	s.Limits, s.Scorers, s.Target = limits, []*agentv1.ScorerRef{{Name: "includes"}}, &agentv1.Target{Values: []string{"x"}}
	name := f.start().Create(s).Name
	<-begun
	return name
}

// holding begins a run whose model answers when it is let.
func (f *fleet) holding(limits *agentv1.RunLimits) (name string, let chan struct{}) {
	let, begun := make(chan struct{}), make(chan struct{}, 1)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		begun <- struct{}{}
		<-let
		return servicetest.Say("ok"), nil
	}
	s := spec(step("generate", ""), step("user_message", `{"template": "Thanks."}`))
	s.Limits = limits
	name = f.start().Create(s).Name
	<-begun
	return name, let
}

// serves connects a worker of the name w that answers calls of each kind alike.
func (f *fleet) serves(answers map[string]string) (stop func()) {
	hosted, err := workers.New(workers.Config{Ledger: &memory.Ledger{}, Owner: "test", Taken: func(string) bool { return false }, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(f.T, err)
	f.Workers = hosted
	var service served
	hosted.Register(&service)
	w := workertest.Connect(f.T.(*testing.T), service) //nolint:forcetypeassert // Only tests record.
	offers := []*workerv1.Offer{}
	for kind := range answers {
		offers = append(offers, &workerv1.Offer{Kind: kind, Name: "w"})
	}
	w.Register(&workerv1.Register{Project: "projects/p", Offers: offers})
	go w.Serve(func(call *workerv1.Call) *workerv1.ConnectRequest {
		return workertest.Result(call.GetKey(), answers[call.GetKind()])
	})
	return func() { assert.NoError(f.T, hosted.Close(context.Background())) }
}

// awayStore is a store that takes nothing while it is silent.
type awayStore struct {
	journal.Store
	*silence
}

func (s *awayStore) Append(ctx context.Context, a journal.Append) error {
	if s.dead.Load() {
		return s.fails
	}
	return s.Store.Append(ctx, a)
}

// The engine still writes the runs of the corpus, which the tests of run fold.
func TestRecordedJournalsAreTheEngines(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, shape.agents...)
				journal := shape.play(f)
				assert.True(t, f.State(journal).Finished)
				corpustest.Record(t, "../run/testdata/journals", name, f.Events(journal))
				f.End()
			})
		})
	}
}
