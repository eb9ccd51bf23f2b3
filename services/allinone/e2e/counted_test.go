package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// The scores of the counted evaluation show whether every command ran exactly once: each command adds a letter to a
// file in its sample's sandbox, and the scorers are right only if that file has each letter once. The scripted model
// also keeps a log of its calls.
//
//	turn 1   a            one call
//	turn 2   b  c         two concurrent calls
//	turn 3   the count    as the model would see it
//	turn 4   submit
//	scoring  s            exec: adds a letter of its own;  exec1: looks again;  includes: compares the answer
const (
	countedSamples = 3
	countedEpochs  = 2
	countedTurns   = 4
)

const (
	addAndLook = `echo s >> trace; [ "$(sort trace | tr -d '\n')" = abcs ] || { cat trace; exit 1; }`
	lookAgain  = `[ "$(sort trace | tr -d '\n')" = abcs ] || { cat trace; exit 1; }`
)

// counted is the evaluation. The last sample's answer is wrong.
func counted(t *testing.T) *agentv1.EvalSpec {
	t.Helper()
	bash := func(command string) object {
		return object{"function": "bash", "arguments": object{"command": command}}
	}
	samples := &agentv1.SampleList{}
	var script []any
	for i := range countedSamples {
		id, answer := fmt.Sprintf("sample-%d", i+1), "right"
		if i == countedSamples-1 {
			answer = "wrong"
		}
		samples.Samples = append(samples.Samples, &agentv1.Sample{
			Id: id, Input: []*modelv1.ChatMessage{chat.User("Count what happens.")}, Target: &agentv1.Target{Values: []string{"right"}},
		})
		script = append(script, object{"sample": id, "outputs": []object{
			{"tool_calls": []object{bash("echo a >> trace")}},
			{"tool_calls": []object{bash("echo b >> trace"), bash("sleep 0.2; echo c >> trace")}},
			{"tool_calls": []object{bash("wc -l < trace")}},
			{"tool_calls": []object{{"function": "submit", "arguments": object{"answer": answer}}}},
		}})
	}
	return &agentv1.EvalSpec{
		Task:      "counted",
		Dataset:   &agentv1.Dataset{Name: "counted", Source: &agentv1.Dataset_Inline{Inline: samples}},
		Steps:     react("bash"),
		Models:    []*agentv1.ModelRef{scripted(t, script...)},
		Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {Driver: "local"}},
		Scorers: []*agentv1.ScorerRef{
			{Name: "exec", ParamsJson: text(t, object{"program": addAndLook, "language": "bash", "cwd": "."})},
			{Name: "exec", ParamsJson: text(t, object{"program": lookAgain, "language": "bash", "cwd": "."})},
			{Name: "includes"},
		},
		Epochs:     &agentv1.Epochs{Count: new(int32(countedEpochs))},
		MaxSamples: new(int32(3)),
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// verdicts is the table of results, without the parts that differ between two runs of the same evaluation: names and
// times.
type verdicts struct {
	State    string
	Progress string
	Metrics  map[string]float64
	Samples  []string
}

// verdictsOf reads the table of an evaluation that has ended.
func verdictsOf(t *testing.T, c *client, eval *agentv1.Eval) verdicts {
	t.Helper()
	p := eval.GetProgress()
	v := verdicts{
		State:    eval.GetState().String(),
		Progress: fmt.Sprintf("%d of %d, %d failed, %d cancelled, %d limited, %d tokens", p.GetSucceeded(), p.GetTotal(), p.GetFailed(), p.GetCancelled(), p.GetLimited(), p.GetTotalTokens()),
		Metrics:  map[string]float64{},
	}
	for _, s := range eval.GetResults().GetScores() {
		for _, m := range s.GetMetrics() {
			v.Metrics[s.GetName()+"/"+m.GetKey()] = m.GetValue()
		}
	}
	for _, s := range c.samples(t, eval.GetName()) {
		line := fmt.Sprintf("%s epoch %d try %d: %s, %d tokens", s.GetId(), s.GetEpoch(), s.GetAttempts(), s.GetState(), s.GetUsage().GetTotalTokens())
		if s.GetError() != nil {
			line += ", " + s.GetError().GetReason() + ": " + s.GetError().GetMessage()
		}
		for _, score := range s.GetScores() {
			line += fmt.Sprintf(", %s %s", score.GetName(), score.GetScore().GetValue().GetText())
		}
		v.Samples = append(v.Samples, line)
	}
	return v
}

// callsOf reads the scripted model's log: the number of calls of each turn of each sample.
func callsOf(t *testing.T, file string) map[string]int {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	calls := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var call struct {
			Sample string
			Epoch  int
			Turn   int
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &call), lines.Text())
		calls[fmt.Sprintf("%s epoch %d turn %d", call.Sample, call.Epoch, call.Turn)]++
	}
	return calls
}

// checkCounted requires that a counted evaluation ran exactly once, by its journals, the model's log and the sandboxes.
// It returns how many model calls were reissued.
func checkCounted(t *testing.T, c *client, eval *agentv1.Eval, callLog string) (reissues int) {
	t.Helper()
	calls := callsOf(t, callLog)
	assert.Len(t, calls, countedSamples*countedEpochs*countedTurns, "every turn was asked for, and no other")
	for _, s := range c.samples(t, eval.GetName()) {
		events := c.journal(t, s.GetRun())
		checkJournal(t, events)
		for turn, again := range modelCalls(events) {
			slot := fmt.Sprintf("%s epoch %d turn %d", s.GetId(), s.GetEpoch(), turn)
			reissues += again
			// Not all calls that were in flight at a kill had reached the model.
			assert.LessOrEqual(t, calls[slot], 1+again, "%s: made once, and again as the journal says", slot)
			assert.Positive(t, calls[slot], slot)
		}
		if !assert.Contains(t, toolTexts(events), "3\n", "the count that the model saw") {
			showEvents(t, events)
		}
	}
	var boxes []string
	eventually(t, func() bool {
		r, err := c.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Parent: project, PageSize: 1000, ShowDeleted: true})
		require.NoError(t, err)
		boxes = nil
		for _, box := range r.GetSandboxes() {
			boxes = append(boxes, box.GetState().String())
		}
		return len(boxes) == countedSamples*countedEpochs && strings.Count(strings.Join(boxes, " "), "_DELETED") == len(boxes)
	}, "one sandbox for each sample, and none is left")
	return reissues
}

// checkJournal asks that a journal has no gaps, ends once, and that each effect ended once.
func checkJournal(t *testing.T, events []*agentv1.Event) {
	t.Helper()
	open := map[int64]string{}
	began := func(e *agentv1.Event, what string) { open[e.GetSeq()] = what }
	ended := func(seq int64, what string) {
		assert.Equal(t, what, open[seq], "the outcome of %d belongs to an open intent", seq)
		delete(open, seq)
	}
	for i, e := range events {
		require.Equal(t, int64(i+1), e.GetSeq(), "the journal is dense")
		switch k := e.GetKind().(type) {
		case *agentv1.Event_ModelIntent:
			began(e, "model")
		case *agentv1.Event_ModelOutcome:
			ended(k.ModelOutcome.GetIntent(), "model")
		case *agentv1.Event_ToolIntent:
			began(e, "tool")
		case *agentv1.Event_ToolOutcome:
			ended(k.ToolOutcome.GetIntent(), "tool")
		case *agentv1.Event_SandboxIntent:
			began(e, "sandbox")
		case *agentv1.Event_SandboxOutcome:
			ended(k.SandboxOutcome.GetIntent(), "sandbox")
		case *agentv1.Event_ExecIntent:
			began(e, "exec")
		case *agentv1.Event_ExecOutcome:
			ended(k.ExecOutcome.GetIntent(), "exec")
		case *agentv1.Event_ScoreIntent:
			began(e, "score")
		case *agentv1.Event_ScoreOutcome:
			ended(k.ScoreOutcome.GetIntent(), "score")
		case *agentv1.Event_RunFinished:
			assert.Len(t, events, i+1, "nothing follows the end")
		}
	}
	assert.Empty(t, open, "every intent has its outcome")
	require.NotEmpty(t, events)
	assert.NotNil(t, events[len(events)-1].GetRunFinished(), "the journal ends with the end")
}

// modelCalls returns for each turn in a journal how often its call was issued again.
func modelCalls(events []*agentv1.Event) map[int32]int {
	turns, calls := map[int64]int32{}, map[int32]int{}
	for _, e := range events {
		if intent := e.GetModelIntent(); intent != nil {
			turns[e.GetSeq()] = intent.GetTurn()
		}
		if outcome := e.GetModelOutcome(); outcome != nil {
			calls[turns[outcome.GetIntent()]] += int(outcome.GetTiming().GetReissues())
		}
	}
	return calls
}

// showEvents prints a journal, for debugging.
func showEvents(t *testing.T, events []*agentv1.Event) {
	t.Helper()
	for _, e := range events {
		t.Log(protojson.Format(e))
	}
}

// toolTexts are the texts that tools gave.
func toolTexts(events []*agentv1.Event) []string {
	var texts []string
	for _, e := range events {
		if outcome := e.GetToolOutcome(); outcome != nil {
			texts = append(texts, outcome.GetContent().GetResult().GetContent().GetText())
		}
	}
	return texts
}

// countedHome is a home whose model logs its calls.
func countedHome(t *testing.T, b *build, f form, env ...string) (h *home, callLog string) {
	t.Helper()
	h = newHome(t, b, f)
	callLog = filepath.Join(h.logs, "calls.jsonl")
	h.env = append(env, "EVALFLEET_MODELGW_MOCK_CALL_LOG="+callLog)
	return h, callLog
}
