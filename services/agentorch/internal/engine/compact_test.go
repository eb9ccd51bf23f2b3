package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// longLife is a run whose agent reads three long texts, of 100 tokens each, and is compacted above 350.
func longLife(f *fleet, compaction string) *agentv1.RunSpec {
	turns := servicetest.ByTurn(
		servicetest.Says("One.", call("c1", "read", `{}`)), servicetest.Says("Two.", call("c2", "read", `{}`)), servicetest.Says("Three.", call("c3", "read", `{}`)),
		servicetest.Says("Done.", call("c4", "submit", `{"answer": "42"}`)),
	)
	f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetPurpose() == agent.PurposeCompaction {
			return servicetest.Say("So far: nothing."), nil
		}
		o, err := turns(ctx, r)
		o.Usage = nil
		return o, err
	}
	f.Tools.Tools["read"] = says(strings.Repeat("four", 100))
	return spec(step("react", `{"prompt": null, "compaction": `+compaction+`}`, "read"))
}

// sawOf are the texts of what the model was sent, by call, long ones shortened.
func sawOf(requests []*modelv1.GenerateRequest) (all [][]string) {
	for _, r := range requests {
		var saw []string
		for _, text := range texts(r.GetMessages()) {
			head, _, _ := strings.Cut(text, "\n")
			saw = append(saw, head[:min(len(head), 32)])
		}
		all = append(all, saw)
	}
	return all
}

const (
	long      = "T:fourfourfourfourfourfourfourfo"
	summaryIs = "U:[CONTEXT COMPACTION SUMMARY]"
	asksFor   = "U:The conversation above becom"
)

func TestASummaryTakesThePlaceOfWhatTheModelIsSent(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	s := f.Finish(f.Create(longLife(f, `{"strategy": "summary", "threshold": 350}`)).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, s.Phase)
	saw := sawOf(f.Models.Requests())
	require.Len(t, saw, 5)
	whole := []string{"U:Start.", "A:One.", long, "A:Two.", long, "A:Three.", long}
	assert.Equal(t, whole[:5], saw[2])
	assert.Equal(t, append(whole, asksFor), cut(saw[3], len(asksFor)))
	assert.Equal(t, []string{"U:Start.", summaryIs}, saw[4])
	said := texts(s.Messages())
	require.Len(t, said, 9, "the conversation stays whole")
	assert.Contains(t, said[7], "So far: nothing.")
	assert.Equal(t, 4, s.Turns, "a summary is no turn")
	for _, r := range f.Models.Requests() {
		if r.GetAttribution().GetPurpose() == agent.PurposeCompaction {
			assert.Empty(t, r.GetTools())
		}
	}
}

// cut shortens the last of texts.
func cut(all []string, n int) []string {
	all[len(all)-1] = all[len(all)-1][:n]
	return all
}

func TestTheProvidersOwnCompactionIsUsedFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Shorten = func(*modelv1.CompactRequest) ([]*modelv1.ChatMessage, error) {
		return []*modelv1.ChatMessage{chat.Assistant("sealed")}, nil
	}
	life := longLife(f, `{"strategy": "auto", "threshold": 350, "instructions": "Keep names."}`)
	life.Model = &agentv1.ModelRef{Model: "mockllm/batched"}
	life.Config = &modelv1.GenerateConfig{MaxTokens: new(int64(100)), Batch: &modelv1.BatchSetting{Enabled: true}}
	s := f.Finish(f.Create(life).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, s.Phase)
	compacts := f.Models.Compacts()
	require.Len(t, compacts, 1)
	assert.Equal(t, int64(100), compacts[0].GetConfig().GetMaxTokens())
	assert.Nil(t, compacts[0].GetConfig().GetBatch(), "turns go in batches, a compaction does not")
	assert.Equal(t, "Keep names.", compacts[0].GetInstructions())
	assert.Len(t, compacts[0].GetMessages(), 7)
	assert.Len(t, compacts[0].GetTools(), 2)
	saw := sawOf(f.Models.Requests())
	assert.Equal(t, []string{"A:sealed"}, saw[len(saw)-1], "it has read the rest")
	assert.Len(t, s.Messages(), 8)
}

func TestAProviderThatCannotCompactHasItsModelSummarise(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	s := f.Finish(f.Create(longLife(f, `{"strategy": "auto", "threshold": 350}`)).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, s.Phase)
	saw := sawOf(f.Models.Requests())
	assert.Equal(t, []string{"U:Start.", summaryIs}, saw[len(saw)-1])
	var event string
	for _, e := range f.transcriptOf(s.Name) {
		if e.Event == "compaction" {
			event = string(e.Metadata)
		}
	}
	assert.JSONEq(t, `{"strategy": "CompactionAuto", "strategy_applied": "CompactionSummary", "trigger": "threshold", "messages_before": 7, "messages_after": 2,
		"fallback_reason": "the provider of mockllm/model cannot compact"}`, event)
}

// TestACompactionOfTheProviderMustLeaveMessages has a provider that answers with none.
func TestACompactionOfTheProviderMustLeaveMessages(t *testing.T) {
	t.Parallel()
	for strategy, phase := range map[string]agentv1.RunState{
		"auto": agentv1.RunState_RUN_STATE_SUCCEEDED, "native": agentv1.RunState_RUN_STATE_FAILED,
	} {
		f := newFleet(t).start()
		f.Models.Shorten = func(*modelv1.CompactRequest) ([]*modelv1.ChatMessage, error) { return nil, nil }
		s := f.Finish(f.Create(longLife(f, `{"strategy": "`+strategy+`", "threshold": 350}`)).Name)
		assert.Equal(t, phase, s.Phase, strategy)
		saw := sawOf(f.Models.Requests())
		if phase == agentv1.RunState_RUN_STATE_SUCCEEDED {
			assert.Equal(t, []string{"U:Start.", summaryIs}, saw[len(saw)-1])
		} else {
			assert.Contains(t, s.Error.GetMessage(), "no messages")
		}
	}
}

// TestAProviderWithoutRoomForACompactionHasItsModelSummarise has a rate limit that outlasts the retries of a call.
func TestAProviderWithoutRoomForACompactionHasItsModelSummarise(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Shorten = func(*modelv1.CompactRequest) ([]*modelv1.ChatMessage, error) {
		return nil, rpcerr.ProviderRateLimited("openai", 429, 0, "slower")
	}
	s := f.Finish(f.Create(longLife(f, `{"strategy": "auto", "threshold": 350}`)).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, s.Phase)
	saw := sawOf(f.Models.Requests())
	assert.Equal(t, []string{"U:Start.", summaryIs}, saw[len(saw)-1])
}

// TestASummaryOfAnotherConversationIsNotUsed has summaries that are too long, so that the conversation is cut, and then
// another full context.
func TestASummaryOfAnotherConversationIsNotUsed(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	s := longLife(f, `{"strategy": "summary", "threshold": 350}, "truncation": "auto"`)
	answer, summaries, full := f.Models.Answer, 0, 0
	f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		switch purpose, turn := r.GetAttribution().GetPurpose(), r.GetAttribution().GetTurn(); {
		case purpose == agent.PurposeCompaction:
			if summaries++; summaries <= 2 {
				return servicetest.Say(strings.Repeat("very long ", 200)), nil
			}
		case turn >= 3 && full < 2:
			full++
			o := servicetest.Say("")
			o.GetChoices()[0].StopReason = modelv1.StopReason_STOP_REASON_MODEL_LENGTH
			return o, nil
		case turn >= 3:
			return servicetest.Say("Done.", call("c4", "submit", `{"answer": "42"}`)), nil
		}
		return answer(ctx, r)
	}
	got := f.Finish(f.Create(s).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, 3, summaries, "the earlier ones are about more than is left")
	saw := sawOf(f.Models.Requests())
	assert.Equal(t, []string{"U:Start.", summaryIs}, saw[len(saw)-1])
}

func TestACompactionThatFails(t *testing.T) {
	t.Parallel()
	refused := rpcerr.ProviderRejected("openai", 400, "no")
	for name, c := range map[string]struct {
		params string
		full   bool
		phase  agentv1.RunState
		says   string // in the error of the run; empty: it has none
	}{
		"ends the run":                             {`{"strategy": "summary", "threshold": 350}`, false, agentv1.RunState_RUN_STATE_FAILED, "no"},
		"stops an agent whose context is full":     {`{"strategy": "summary", "threshold": 100000}`, true, agentv1.RunState_RUN_STATE_SUCCEEDED, ""},
		"cannot make the conversation any smaller": {`{"strategy": "trim", "threshold": 10}`, false, agentv1.RunState_RUN_STATE_FAILED, "more than its threshold of 10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			s := longLife(f, c.params)
			answer := f.Models.Answer
			f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				o, err := answer(ctx, r)
				switch {
				case r.GetAttribution().GetPurpose() == agent.PurposeCompaction:
					return nil, refused
				case c.full && r.GetAttribution().GetTurn() == 3:
					o = servicetest.Say("")
					o.GetChoices()[0].StopReason = modelv1.StopReason_STOP_REASON_MODEL_LENGTH
				}
				return o, err
			}
			got := f.Finish(f.Create(s).Name)
			assert.Equal(t, c.phase, got.Phase)
			assert.Equal(t, c.says == "", got.Error == nil)
			assert.Contains(t, got.Error.GetMessage(), c.says)
		})
	}
}

// TestAFullContextIsCompactedOnceForAQuestion has the model refuse between two answers that find the context full.
func TestAFullContextIsCompactedOnceForAQuestion(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	stops := []modelv1.StopReason{
		modelv1.StopReason_STOP_REASON_MODEL_LENGTH, modelv1.StopReason_STOP_REASON_CONTENT_FILTER, modelv1.StopReason_STOP_REASON_MODEL_LENGTH,
	}
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		o := servicetest.Say("")
		o.Choices[0].StopReason = stops[0]
		stops = append(stops[1:], modelv1.StopReason_STOP_REASON_STOP)
		return o, nil
	}
	s := f.Finish(f.Create(spec(step("react", `{"prompt": null, "retry_refusals": 1, "compaction": {"strategy": "trim", "threshold": 100000}}`))).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, s.Phase)
	assert.Len(t, f.Models.Requests(), 3, "another compaction would not help")
}

func TestAFailedTurnOfACompactedAgentFailsTheRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	s := longLife(f, `{"strategy": "trim"}`)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return nil, rpcerr.ProviderRejected("openai", 400, "no")
	}
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, f.Finish(f.Create(s).Name).Phase)
}

// TestAMessageOfAnOperatorIsNotLostInASummary posts while the summary is made.
func TestAMessageOfAnOperatorIsNotLostInASummary(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	s := longLife(f, `{"strategy": "summary", "threshold": 350}`)
	let, begun, answer := make(chan struct{}), make(chan struct{}, 1), f.Models.Answer
	f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetPurpose() == agent.PurposeCompaction {
			begun <- struct{}{}
			<-let
		}
		return answer(ctx, r)
	}
	name := f.Create(s).Name
	<-begun
	f.send(name, "message/1", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("Be quick.")}})
	f.Until(name, func(s *run.State) bool { return len(s.Posted) == 1 })
	close(let)
	got := f.Finish(name)
	saw := sawOf(f.Models.Requests())
	assert.Equal(t, []string{"U:Start.", summaryIs, "U:Be quick."}, saw[len(saw)-1])
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
}

// TestATurnIsCutDuringASummary interrupts, so that the summary is asked for again in the next turn.
func TestATurnIsCutDuringASummary(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	s := longLife(f, `{"strategy": "summary", "threshold": 350}`)
	begun, answer, asked := make(chan struct{}, 1), f.Models.Answer, 0
	f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetPurpose() == agent.PurposeCompaction {
			if asked++; asked == 1 {
				begun <- struct{}{}
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
		return answer(ctx, r)
	}
	name := f.Create(s).Name
	<-begun
	f.send(name, "interrupt/1", &agentv1.InterruptRunRequest{Messages: []*modelv1.ChatMessage{user("Turn back.")}})
	got := f.Finish(name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, 2, asked)
	saw := sawOf(f.Models.Requests())
	assert.Equal(t, []string{"U:Start.", summaryIs}, saw[len(saw)-1])
}

// TestTheThresholdIsAPartOfTheModelsWindow pins the window at the creation of the run.
func TestTheThresholdIsAPartOfTheModelsWindow(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Window = 700
	s := f.Finish(f.Create(longLife(f, `{"strategy": "trim", "threshold": 0.5, "preserve": 0.1}`)).Name)
	assert.Equal(t, map[string]int64{"": 700}, s.Spec().GetSteps()[0].GetContextWindows())
	saw := sawOf(f.Models.Requests())
	assert.Equal(t, []string{"U:Start."}, saw[len(saw)-1])
	assert.Empty(t, s.Warnings)

	f = newFleet(t).start()
	s = f.Finish(f.Create(longLife(f, `{"strategy": "trim"}`)).Name)
	require.Len(t, s.Warnings, 1)
	assert.Contains(t, s.Warnings[0].GetMessage(), "context window of mockllm/model is unknown")

	ofSample := longLife(f, `{"strategy": "trim"}`)
	ofSample.Attribution = &effectv1.Attribution{Eval: "projects/p/evals/e", Sample: "1", Epoch: 1}
	assert.Empty(t, f.Finish(f.Create(ofSample).Name).Warnings, "the evaluation has it")
}

// notedLife is longLife with a tool for notes, and is not compacted.
func notedLife(f *fleet) *agentv1.RunSpec {
	s := longLife(f, `{"strategy": "trim", "threshold": 420}`)
	f.Tools.Tools["memory"] = says("saved")
	s.Steps[0].Tools = append(s.Steps[0].Tools, &toolv1.ToolRef{Name: "memory"})
	return s
}

func TestAModelIsToldOnceToSaveNotes(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	s := notedLife(f)
	got := f.Finish(f.Create(s).Name)
	saw := sawOf(f.Models.Requests())
	assert.Equal(t, []string{"U:Start.", "A:One.", long, "A:Two.", long, "A:Three.", long, "U:The conversation will be short"}, saw[len(saw)-1])
	assert.Len(t, got.Messages(), 8, "the conversation does not have it")
}

// TestDeathAtEveryAppendOfACompaction has a provider that cannot compact, so that a summary follows.
func TestDeathAtEveryAppendOfACompaction(t *testing.T) {
	t.Parallel()
	life := func(f *fleet) *agentv1.RunSpec { return longLife(f, `{"strategy": "auto", "threshold": 350}`) }
	calm := newFleet(t).start()
	want := calm.ending(calm.Finish(calm.Create(life(calm)).Name))
	require.Equal(t, 6, want.Models, "four turns, a compaction and a summary")
	dieEverywhere(t, want, life)
}
