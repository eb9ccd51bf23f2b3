package transcript_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/transcript"
)

func write(o transcript.Options, events ...*agentv1.Event) string {
	var b strings.Builder
	w := transcript.New(&b, o)
	for _, e := range events {
		w.Event(e)
	}
	return b.String()
}

func assistant(text string, calls ...*toolv1.ToolCall) *agentv1.Event {
	m := chat.Assistant(text, calls...)
	m.Id = "a1"
	return &agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
		Usage: &modelv1.ModelUsage{InputTokens: 12, OutputTokens: 3}, StopReason: modelv1.StopReason_STOP_REASON_TOOL_CALLS,
		Timing:  &effectv1.Timing{Working: durationpb.New(1500 * time.Millisecond)},
		Content: &agentv1.ModelOutcomeContent{Output: chat.MessageOutput("m", m, modelv1.StopReason_STOP_REASON_TOOL_CALLS)},
	}}}
}

func TestARunReadsAsAConversation(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	call := chat.Call("c1", "bash", `{"cmd": "echo hello\necho there", "timeout": 5}`)
	again := chat.Assistant("Trying.", call)
	again.Id = "a1"
	got := write(transcript.Options{},
		&agentv1.Event{Journal: "projects/default/runs/r1", Time: timestamppb.New(start), Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{
			Spec: &agentv1.RunSpec{
				Steps: []*agentv1.AgentRef{{Name: "system_message"}, {Name: "react"}}, Model: &agentv1.ModelRef{Model: "mockllm/m"},
				Attribution: &effectv1.Attribution{Eval: "projects/default/evals/e1", Sample: "7", Epoch: 2},
			},
			Content: &agentv1.RunCreatedContent{Input: []*modelv1.ChatMessage{chat.User("What is it?")}},
		}}},
		&agentv1.Event{Kind: &agentv1.Event_SandboxOutcome{SandboxOutcome: &agentv1.SandboxOutcome{
			Environment: "default",
			Sandbox:     &sandboxv1.Sandbox{Name: "projects/default/sandboxes/s1", Isolation: &sandboxv1.Isolation{Weaker: []string{"pids: by user"}}},
		}}},
		&agentv1.Event{Kind: &agentv1.Event_RunStateChanged{RunStateChanged: &agentv1.RunStateChanged{}}},
		assistant("Trying.", call),
		&agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: again}}},
		&agentv1.Event{Kind: &agentv1.Event_ToolOutcome{ToolOutcome: &agentv1.ToolOutcome{
			Function: "bash", MessageId: "t1", Timing: &effectv1.Timing{Working: durationpb.New(20 * time.Millisecond)},
			Truncation: &toolv1.Truncation{RawBytes: 9, LimitBytes: 5},
			Content: &agentv1.ToolOutcomeContent{Result: &toolv1.ToolResult{
				Content: chat.TextContent("hello\n"), Error: &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, Message: "too slow"},
			}},
		}}},
		&agentv1.Event{Seq: 9, Kind: &agentv1.Event_ExecIntent{ExecIntent: &agentv1.ExecIntent{Purpose: "score"}}},
		&agentv1.Event{Kind: &agentv1.Event_ExecOutcome{ExecOutcome: &agentv1.ExecOutcome{
			Intent: 9, Content: &sandboxv1.ExecResult{ExitCode: new(int32(1)), Stderr: []byte("AssertionError\n"), Duration: durationpb.New(time.Second)},
		}}},
		&agentv1.Event{Kind: &agentv1.Event_ScoreOutcome{ScoreOutcome: &agentv1.ScoreOutcome{
			Name: "exec", Value: &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: "I"}},
			Content: &agentv1.ScoreContent{Score: &agentv1.Score{Answer: new("def f(): …"), Explanation: new("a test failed")}},
		}}},
		&agentv1.Event{Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{
			State: agentv1.RunState_RUN_STATE_SUCCEEDED, TotalTime: durationpb.New(3 * time.Second), WorkingTime: durationpb.New(2 * time.Second),
			Limit: &agentv1.LimitReached{Type: agentv1.LimitType_LIMIT_TYPE_TURN, Message: "5 turns"},
		}}},
	)
	assert.Equal(t, `
■ run · projects/default/runs/r1 · 2026-01-02 03:04:05
  model mockllm/m
  steps system_message → react
  sample 7 epoch 2 of projects/default/evals/e1

■ user
  What is it?

■ sandbox default · projects/default/sandboxes/s1
  weaker here: pids: by user

■ assistant · 12 tokens in, 3 out, 1.5 s
  Trying.
  → bash
    cmd:
      echo hello
      echo there
    timeout: 5

■ tool bash · 20 ms, cut from 9 to 5 bytes
  hello
  error (timeout): too slow

■ command for score
  exit 1 after 1.0 s
  AssertionError

■ score exec · I
  answer: def f(): …
  a test failed

■ succeeded · after 3.0 s, working 2.0 s
  ended by the turn limit: 5 turns
`, got)
}

func TestACallThatCannotBeReadSaysWhy(t *testing.T) {
	t.Parallel()
	given, empty := chat.Call("c1", "bash", ""), chat.Call("c2", "bash", "")
	given.ParseError, empty.ParseError = new("no JSON"), new("")
	assert.Contains(t, write(transcript.Options{}, assistant("", given)), "cannot be read: no JSON")
	assert.NotContains(t, write(transcript.Options{}, assistant("", empty)), "cannot be read", "an empty error is none, and the call ran")
}

func TestFailedAttemptsAreTold(t *testing.T) {
	t.Parallel()
	e := assistant("At last.")
	e.GetModelOutcome().FailedAttempts = []*modelv1.FailedAttempt{
		{Error: "503 overloaded", Wait: durationpb.New(time.Second)},
		{Error: "500 broken", Wait: durationpb.New(3 * time.Second)},
	}
	assert.Equal(t, `
■ model call tried again · failed attempts: 2, waited 4.0 s
  500 broken

■ assistant · 12 tokens in, 3 out, 1.5 s
  At last.
`, write(transcript.Options{}, e))
	e.GetModelOutcome().Timing.Attempts, e.GetModelOutcome().Timing.RetryWait = 9, durationpb.New(30*time.Second)
	assert.Contains(t, write(transcript.Options{}, e), "failed attempts: 8, waited 30.0 s", "an error names the latest alone")
}

func TestTheModelThatAnsweredInPlaceOfAnotherIsTold(t *testing.T) {
	t.Parallel()
	e := assistant("Done.")
	e.GetModelOutcome().UnsentOptions = []string{"temperature", "seed"}
	assert.Contains(t, write(transcript.Options{}, e), "3 out, 1.5 s\n", "of the requested model the evaluation tells it once")
	e.GetModelOutcome().Content.Output.Fallback = &modelv1.ModelFallback{Model: "openai/gpt-4o", FallbackModel: "anthropic/claude-opus-4-8"}
	assert.Contains(t, write(transcript.Options{}, e), "3 out, 1.5 s, answered by anthropic/claude-opus-4-8 (not sent: temperature, seed)\n")
	e.GetModelOutcome().UnsentOptions = nil
	assert.Contains(t, write(transcript.Options{}, e), "3 out, 1.5 s, answered by anthropic/claude-opus-4-8\n")
}

func TestOpenEffectsAreToldInALine(t *testing.T) {
	t.Parallel()
	note := &effectv1.Note{Message: "half \x1b[2J\nway"}
	assert.Equal(t, "half ·[2J way", transcript.NoteText(note))
	note.RetryTime = timestamppb.New(time.Now().Add(time.Minute + time.Millisecond))
	assert.Equal(t, "retrying in 60 s: half ·[2J way", transcript.NoteText(note))
	note.RetryTime = timestamppb.New(time.Now())
	assert.Equal(t, "retrying: half ·[2J way", transcript.NoteText(note))
}

func TestOutputsCannotDriveTheTerminal(t *testing.T) {
	t.Parallel()
	got := write(transcript.Options{Color: true}, assistant("\x1b[2Jgone\x07 \u009b5A\r\n\xff", chat.Call("c", "x\x1b]0;title\x07", `{"\u001b[1m": "\u001b[0m"}`)))
	own := strings.NewReplacer("\x1b[1;36m", "", "\x1b[2m", "", "\x1b[0m", "").Replace(got)
	for _, r := range own {
		assert.False(t, r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0, "%q in %q", r, own)
	}
	assert.Contains(t, own, "·[2Jgone")
}

func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("line %d", i))
	}
	short := write(transcript.Options{}, assistant(strings.Join(lines, "\n")))
	assert.Contains(t, short, "  line 39\n  … 40 lines more; --full shows them …\n  line 80\n")
	full := write(transcript.Options{Full: true}, assistant(strings.Join(lines, "\n")))
	assert.Contains(t, full, "  line 60\n")
}

func TestOtherEventsOnRequest(t *testing.T) {
	t.Parallel()
	span := &agentv1.Event{Seq: 3, Kind: &agentv1.Event_SpanBegan{SpanBegan: &agentv1.SpanBegan{}}}
	assert.Empty(t, write(transcript.Options{}, span))
	assert.Equal(t, "\n■ span_began · event 3\n", write(transcript.Options{Events: true}, span))
	assert.Equal(t, "\n■ unknown kind · event 4\n", write(transcript.Options{Events: true}, &agentv1.Event{Seq: 4}))
}

func TestWithoutContentTheRestIsStillThere(t *testing.T) {
	t.Parallel()
	e := assistant("secret")
	e.GetModelOutcome().Content = nil
	assert.Equal(t, "\n■ assistant · 12 tokens in, 3 out, 1.5 s\n", write(transcript.Options{}, e))
}

func TestScoreText(t *testing.T) {
	t.Parallel()
	number := &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Number{Number: 0.25}}
	for want, v := range map[string]*agentv1.ScoreValue{
		"–":              nil,
		"0.25":           number,
		"true":           {Kind: &agentv1.ScoreValue_Flag{Flag: true}},
		"[0.25]":         {Kind: &agentv1.ScoreValue_List{List: &agentv1.ScoreValueList{Values: []*agentv1.ScoreValue{number}}}},
		"a 0.25, b 0.25": {Kind: &agentv1.ScoreValue_Map{Map: &agentv1.ScoreValueMap{Entries: []*agentv1.ScoreValueEntry{{Key: "a", Value: number}, {Key: "b", Value: number}}}}},
	} {
		assert.Equal(t, want, transcript.ScoreText(v))
	}
}

func TestChangesOfTheHistory(t *testing.T) {
	t.Parallel()
	first, second := chat.User("before"), chat.User("after")
	second.Id = first.GetId()
	changed := func(reason string) *agentv1.Event {
		return &agentv1.Event{Kind: &agentv1.Event_HistoryChanged{HistoryChanged: &agentv1.HistoryChanged{
			Reason: reason, Content: &agentv1.HistoryContent{Messages: []*modelv1.ChatMessage{second}},
		}}}
	}
	added := &agentv1.Event{Kind: &agentv1.Event_MessageAdded{MessageAdded: &agentv1.MessageAdded{Content: first}}}
	assert.Equal(t, "\n■ user\n  before\n\n■ history · prompt_template\n\n■ user · changed\n  after\n", write(transcript.Options{}, added, changed("prompt_template")))
	assert.Equal(t, "\n■ user\n  before\n", write(transcript.Options{}, added, changed("submit")), "tidying up after a submission is no news")
}

func TestWhatLostCallsCostIsSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	said := "made again 2× after its process ended (tokens of those: unknown)"
	answer := assistant("Done.")
	assert.NotContains(t, write(transcript.Options{}, answer), "made again")
	answer.GetModelOutcome().Timing = &effectv1.Timing{Reissued: true, Reissues: 2}
	assert.Contains(t, write(transcript.Options{}, answer), said)
	answer.GetModelOutcome().Error = &agentv1.RunError{Reason: "EFFECT_CANCELLED", Message: "the call was cancelled"}
	assert.Contains(t, write(transcript.Options{}, answer), "EFFECT_CANCELLED, "+said)
}
