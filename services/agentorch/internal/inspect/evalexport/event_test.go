package evalexport

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript/transcripttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal/journaltest"
)

// bodies is a blob store of texts.
type bodies map[string]string

func (b bodies) Put(context.Context, string, io.Reader, string) (*contentv1.BlobRef, error) {
	return nil, assert.AnError
}

func (b bodies) Open(_ context.Context, _, hash string) (io.ReadCloser, error) {
	body, ok := b[hash]
	if !ok {
		return nil, assert.AnError
	}
	return io.NopCloser(strings.NewReader(body)), nil
}

// transcriptOf reads events as one journal.
func transcriptOf(t *testing.T, events ...*agentv1.Event) []*transcript.Event {
	t.Helper()
	all, err := transcripttest.Of(func(yield func(*agentv1.Event, error) bool) {
		for i, e := range events {
			e.Journal, e.Seq = "projects/p/runs/r", int64(i+1)
			e.Time = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			if !yield(e, nil) {
				return
			}
		}
	})
	require.NoError(t, err)
	return all
}

func newWriter(t *testing.T, blobs bodies) *writer {
	t.Helper()
	return &writer{
		condenser: &evallog.Condenser{}, media: media{ctx: t.Context(), blobs: blobs, project: "p"},
		sample: &agentv1.Sample{Id: "7", IntegerId: true, InputText: true, Input: []*modelv1.ChatMessage{chat.User("q")}, Choices: []string{"a"}, MetadataJson: `{"n":1}`},
	}
}

// wire is an event as a log has it.
func wire(t *testing.T, e *transcript.Event) map[string]any {
	t.Helper()
	raw := newWriter(t, nil).event(e)
	require.NotNil(t, raw)
	var event map[string]any
	require.NoError(t, json.Unmarshal(raw, &event))
	assert.Equal(t, e.Event, event["event"])
	return event
}

func TestWordsThatReadersDoNotKnow(t *testing.T) {
	t.Parallel()
	empty := map[string]any{"id": "u", "role": "assistant", "content": "", "source": "generate", "model": "p/m"}
	unanswered := map[string]any{"model": "p/m", "choices": []any{map[string]any{"message": empty, "stop_reason": "stop"}}, "completion": ""}
	for name, c := range map[string]struct {
		event  *transcript.Event
		member string
		want   any
	}{
		"a limit of another type":      {&transcript.Event{Event: "sample_limit", Type: "context", Message: json.RawMessage(`"full"`)}, "type", "custom"},
		"a level of another name":      {&transcript.Event{Event: "logger", Message: json.RawMessage(`{"level":"odd","message":"m","created":5}`)}, "message", map[string]any{"level": "info", "message": "m", "created": 5.0}},
		"another action":               {&transcript.Event{Event: "sandbox", Action: "stat"}, "action", "exec"},
		"another kind of compaction":   {&transcript.Event{Event: "compaction", Type: "odd"}, "type", "summary"},
		"another decision":             {&transcript.Event{Event: "approval", Decision: "odd"}, "decision", "reject"},
		"a question that is no text":   {&transcript.Event{Event: "input", Input: json.RawMessage(`{"q":1}`)}, "input", `{"q":1}`},
		"an input that is no object":   {&transcript.Event{Event: "subtask", Input: json.RawMessage(`3`)}, "input", map[string]any{"input": 3.0}},
		"arguments that are no object": {&transcript.Event{Event: "tool", Arguments: json.RawMessage(`"odd"`)}, "arguments", map[string]any{}},
		"a model that did not answer":  {&transcript.Event{Event: "model", UUID: "u", Model: "p/m"}, "output", unanswered},
		"a note without data":          {&transcript.Event{Event: "info"}, "data", nil},
		"a tool without a result":      {&transcript.Event{Event: "tool"}, "result", ""},
		"a change that removes":        {&transcript.Event{Event: "store", Changes: []transcript.Change{{Op: "remove", Path: "/a"}}}, "changes", []any{map[string]any{"op": "remove", "path": "/a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			event := wire(t, c.event)
			require.Contains(t, event, c.member)
			assert.Equal(t, c.want, event[c.member])
		})
	}
}

func TestAFailedCallHasTheConfigurationThatWasSent(t *testing.T) {
	t.Parallel()
	w := newWriter(t, nil)
	w.warnings = []*agentv1.EvalWarning{
		{Model: "p/m", UnsentOptions: []string{"temperature"}},
		{Model: "p/m", UnsentOptions: []string{"effort"}, Field: "spec.steps[1]"},
		{Model: "p/other", UnsentOptions: []string{"seed"}},
		{Model: "p/m", ChangedOptions: []*modelv1.ChangedOption{{Option: "reasoning_effort", Asked: "minimal", Sent: "low"}}},
		{Model: "p/m", ChangedOptions: []*modelv1.ChangedOption{{Option: "reasoning_effort", Asked: "max", Sent: "high"}}}, // of another step
		// Options that some of the evaluation's configurations do not reach; the call has its own.
		{Model: "p/m", UnsentOptions: []string{"seed"}, Field: "spec.config"},
		{Model: "p/m", UnsentOptions: []string{"seed"}, Field: "spec.model"},
		{Model: "p/m", UnsentOptions: []string{"seed"}, Field: `spec.model_roles["judge"]`},
	}
	failed := &transcript.Event{
		Event: "model", Model: "p/m", Config: json.RawMessage(`{"temperature":0.5,"effort":"low","seed":4,"reasoning_effort":"minimal"}`), Error: json.RawMessage(`"refused"`), Traceback: "Traceback",
		Call: json.RawMessage(`{"request":{"model":"m"},"response":{"error":"refused"},"error":true}`),
	}
	var event map[string]any
	require.NoError(t, json.Unmarshal(w.event(failed), &event))
	assert.Equal(t, map[string]any{"seed": 4.0, "reasoning_effort": "low"}, event["config"])
	assert.Equal(t, "Traceback", event["traceback"])
	assert.Equal(t, true, event["call"].(map[string]any)["error"])
}

func TestEventsThatALogCannotHave(t *testing.T) {
	t.Parallel()
	for _, e := range []*transcript.Event{
		{Event: "score", Pending: true}, {Event: "interrupt", Source: "odd", Interrupted: "generate"}, {Event: "interrupt", Source: "limit"}, {Event: "odd"},
	} {
		assert.Nil(t, newWriter(t, nil).event(e))
	}
}

func TestMessagesOfAModelStandInThePool(t *testing.T) {
	t.Parallel()
	w := newWriter(t, bodies{"h": "picture"})
	picture := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(&contentv1.Content{
		Part: &contentv1.Content_Image{Image: &contentv1.Image{Media: &contentv1.Media{Source: &contentv1.Media_Blob{Blob: &contentv1.BlobRef{Hash: "h", MediaType: "image/png"}}}}},
	})}
	first := w.event(&transcript.Event{Event: "model", Messages: []*modelv1.ChatMessage{chat.System("s"), picture}})
	second := w.event(&transcript.Event{Event: "model", Messages: []*modelv1.ChatMessage{picture, chat.User("more")}})
	assert.Contains(t, string(first), `"input":[],"input_refs":[[0,2]]`)
	assert.Contains(t, string(second), `"input_refs":[[1,3]]`)
	require.NoError(t, w.media.err)
	assert.Contains(t, string(w.messages([]*modelv1.ChatMessage{picture})), "data:image/png;base64,cGljdHVyZQ==", "a stored body becomes part of the log")

	lost := newWriter(t, nil)
	lost.event(&transcript.Event{Event: "model", Messages: []*modelv1.ChatMessage{picture}})
	require.ErrorIs(t, lost.media.err, assert.AnError)
}

// TestInspectReadsEveryKindOfEvent gives inspect_ai a log with an event of every kind that a journal can hold, with all
// its fields.
func TestInspectReadsEveryKindOfEvent(t *testing.T) {
	t.Parallel()
	venv, err := filepath.Abs("../../../../../.tools/venv-inspect")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(venv, "requirements.stamp")); err != nil {
		t.Skip("inspect_ai is not there; make setup fetches it")
	}
	w := newWriter(t, bodies{strings.Repeat("x", 200): "body"})
	s := &evallog.Sample{
		ID: evallog.ID{Text: "7", Integer: true}, Epoch: 1, Input: json.RawMessage(`"q"`), Target: json.RawMessage(`"t"`), Output: w.output(nil, "p/m"), Condensed: w.condenser,
	}
	written := map[string]bool{}
	for _, e := range journaltest.Samples(200) {
		if intent := e.GetModelIntent(); intent != nil {
			intent.Config = &modelv1.GenerateConfig{Temperature: new(0.5), MaxTokens: new(int64(9)), Effort: new("odd")}
		}
		for _, short := range transcriptOf(t, &agentv1.Event{Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{}}}, e) {
			if event := w.event(short); event != nil {
				written[short.Event] = true
				s.Events = append(s.Events, event)
			}
		}
	}
	for _, e := range transcriptOf(
		t, &agentv1.Event{Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{}}},
		&agentv1.Event{Kind: &agentv1.Event_ScoreIntent{ScoreIntent: &agentv1.ScoreIntent{Name: "s", Scorer: &agentv1.ScorerRef{Name: "s"}}}},
		&agentv1.Event{Kind: &agentv1.Event_ScoreOutcome{ScoreOutcome: &agentv1.ScoreOutcome{Intent: 2, Content: &agentv1.ScoreContent{Score: &agentv1.Score{Value: &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Number{Number: 0.5}}}}}}},
		&agentv1.Event{Kind: &agentv1.Event_Interrupted{Interrupted: &agentv1.Interrupted{Source: agentv1.InterruptSource_INTERRUPT_SOURCE_LIMIT, Interrupted: agentv1.InterruptedWork_INTERRUPTED_WORK_TOOL_CALL, CallId: "c"}}},
		&agentv1.Event{Kind: &agentv1.Event_StoreChanged{StoreChanged: &agentv1.StoreChanged{Content: &agentv1.StoreContent{Changes: []*toolv1.StoreChange{{Key: "k", ValueJson: new("1")}}}}}},
	) {
		if event := w.event(e); event != nil {
			written[e.Event] = true
			s.Events = append(s.Events, event)
		}
	}
	for kind := range kinds {
		if kind != "state" { // Steps emit it; the end-to-end tests read it.
			assert.True(t, written[kind], "no journal gave an event of kind %s", kind)
		}
	}
	var b bytes.Buffer
	log, err := evallog.NewArchive(&b, &evallog.Header{Status: evallog.Success, Eval: evallog.Eval{Created: time.Now(), Task: "t", Model: "p/m", Dataset: evallog.Dataset{IDs: []evallog.ID{s.ID}}}})
	require.NoError(t, err)
	require.NoError(t, log.Sample(s))
	require.NoError(t, log.Close(nil))
	file := filepath.Join(t.TempDir(), "log.eval")
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	program := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "python"), "-c",
		"import sys; from inspect_ai.log import read_eval_log; print(len(read_eval_log(sys.argv[1], resolve_attachments=True).samples[0].events))", file)
	out, err := program.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.JSONEq(t, string(jsonwrite.Marshal(len(s.Events))), string(out))
}
