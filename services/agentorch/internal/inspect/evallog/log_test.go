package evallog_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog/logtest"
)

var made = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func header() *evallog.Header {
	return &evallog.Header{
		Status: evallog.Success,
		Eval: evallog.Eval{
			EvalID: "e", TaskID: "X1", Created: made, Task: "my_task", Model: "mockllm/model", TaskVersion: "v1",
			Dataset: evallog.Dataset{IDs: []evallog.ID{{Text: "7", Integer: true}, {Text: "a/b"}}},
		},
		Results: &evallog.Results{Total: 2, Completed: 2, Scores: []evallog.Entry{{Name: "s", Scorer: "s", Metrics: []evallog.Value{{Key: "accuracy", Name: "accuracy", Value: math.NaN()}}}}},
	}
}

func sample(id evallog.ID, epoch int) *evallog.Sample {
	return &evallog.Sample{
		ID: id, Epoch: epoch, Input: json.RawMessage(`"in"`), Target: json.RawMessage(`"out"`), Output: json.RawMessage(`{"model":"m","choices":[]}`),
		Scores: []evallog.Score{{Name: "s", Value: json.RawMessage("NaN"), Reason: "grader_failed"}},
	}
}

// write writes a log of two samples.
func write(t *testing.T, begin func(w *bytes.Buffer, h *evallog.Header) (evallog.Writer, error)) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := begin(&b, header())
	require.NoError(t, err)
	require.NoError(t, w.Sample(sample(evallog.ID{Text: "7", Integer: true}, 1)))
	require.NoError(t, w.Sample(sample(evallog.ID{Text: "a/b"}, 1)))
	require.NoError(t, w.Close([]evallog.Reduction{{Scorer: "s", Samples: []evallog.Reduced{{ID: evallog.ID{Text: "a/b"}, Score: evallog.Score{Value: json.RawMessage("1.0")}}}}}))
	return b.Bytes()
}

func archive(w *bytes.Buffer, h *evallog.Header) (evallog.Writer, error) {
	return evallog.NewArchive(w, h)
}

func document(w *bytes.Buffer, h *evallog.Header) (evallog.Writer, error) {
	return evallog.NewDocument(w, h)
}

func TestAnArchiveIsReadBack(t *testing.T) {
	t.Parallel()
	b := write(t, archive)
	log, err := logtest.Open(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	h, err := log.Header()
	require.NoError(t, err)
	assert.Equal(t, "my_task", h.Task)
	assert.Equal(t, "success", h.Status)
	samples, err := log.Samples()
	require.NoError(t, err)
	require.Len(t, samples, 2)
	assert.Equal(t, json.Number("7"), samples[0].ID)
	assert.Equal(t, "a/b", samples[1].ID)
	summaries, err := log.Summaries()
	require.NoError(t, err)
	assert.Len(t, summaries, 2)
	count := 0
	require.NoError(t, log.Listed(true, func(logtest.Part) error { count++; return nil }))
	assert.Equal(t, 2, count)
}

func TestEqualLogsAreEqualBytes(t *testing.T) {
	t.Parallel()
	for _, form := range []func(*bytes.Buffer, *evallog.Header) (evallog.Writer, error){archive, document} {
		first := write(t, form)
		assert.Equal(t, first, write(t, form))
	}
}

func TestADocumentHasTheHeaderFirst(t *testing.T) {
	t.Parallel()
	text := string(write(t, document))
	assert.Contains(t, text, `"value":NaN`)
	var log struct {
		Version    int
		Samples    []struct{ ID any }
		Reductions []any
	}
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(text, "NaN", "null")), &log))
	assert.Equal(t, 2, log.Version)
	assert.Len(t, log.Samples, 2)
	assert.Len(t, log.Reductions, 1)
	assert.Less(t, strings.Index(text, `"stats"`), strings.Index(text, `"samples":[`), "a reader that wants the header alone can stop")
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]float64{"1.0": 1, "0.5": 0.5, "-3.0": -3, "NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1), "1e+20": 1e20, "0.3333333333333333": 1.0 / 3} {
		assert.Equal(t, want, evallog.Number(f))
	}
}

func TestFileNames(t *testing.T) {
	t.Parallel()
	e := header().Eval
	assert.Equal(t, "2026-01-02T03-04-05-00-00_my-task_X1.eval", evallog.FileName(&e, "eval"))
	e.Task = "../x:y+z\\\n"
	assert.Equal(t, "2026-01-02T03-04-05-00-00_..-x-y-z--_X1.json", evallog.FileName(&e, "json"))
}

func TestSummariesAreThin(t *testing.T) {
	t.Parallel()
	s := sample(evallog.ID{Text: "a"}, 1)
	s.Input = json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("x", 6000) + `"},{"type":"image","image":"data:,x"}]}]`)
	s.Target = json.RawMessage(`["` + strings.Repeat("y", 6000) + `"]`)
	s.Metadata = json.RawMessage(`{"n":1,"text":"a  b\n` + strings.Repeat(" word", 400) + `","big":["` + strings.Repeat("z", 1100) + `"],"small":[1]}`)
	s.Scores[0].Explanation = new(strings.Repeat("why ", 500))
	s.Error, s.Limit, s.Retries = &evallog.Error{Message: "broken"}, &evallog.Limit{Type: "turn", Limit: 3}, []evallog.Error{{Message: "before"}}
	var b bytes.Buffer
	w, err := evallog.NewArchive(&b, header())
	require.NoError(t, err)
	require.NoError(t, w.Sample(s))
	require.NoError(t, w.Close(nil))
	log, err := logtest.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	summaries, err := log.Summaries()
	require.NoError(t, err)
	text, err := summaries[0].Document.MarshalJSON()
	require.NoError(t, err)
	var thin struct {
		Input    []struct{ Content []struct{ Text string } }
		Target   []string
		Metadata map[string]any
		Scores   map[string]struct{ Explanation string }
		Error    string
		Limit    string
		Retries  int
	}
	require.NoError(t, json.Unmarshal(text, &thin))
	assert.Less(t, len(thin.Input[0].Content[0].Text), 5200)
	assert.Equal(t, "(Image)", thin.Input[0].Content[1].Text)
	assert.Less(t, len(thin.Target[0]), 5200)
	assert.InDelta(t, 1, thin.Metadata["n"], 0)
	assert.Equal(t, []any{1.0}, thin.Metadata["small"])
	assert.Contains(t, thin.Metadata["big"], "left out")
	short, _ := thin.Metadata["text"].(string)
	assert.True(t, strings.HasPrefix(short, "a b word word"), short)
	assert.LessOrEqual(t, len(short), 1024)
	assert.True(t, strings.HasSuffix(thin.Scores["s"].Explanation, "why..."))
	assert.Equal(t, "broken", thin.Error)
	assert.Equal(t, "turn", thin.Limit)
	assert.Equal(t, 1, thin.Retries)
	samples, err := log.Samples()
	require.NoError(t, err)
	whole, _ := samples[0].Document.Get("target")
	assert.Len(t, whole.([]any)[0], 6000, "the sample itself keeps all")
}

// An archive that is unpacked without care stays in its folder, whatever ids samples have; no two ids share a member.
func TestMembersStayInTheirFolder(t *testing.T) {
	t.Parallel()
	ids := []string{
		"a/b", "..", "../x", "../../../../tmp/x", "a/../../b", `..\..\x`, `a\..\b`, "%2E%2E/x", "%252E%2E/x", "/etc/x", "a\x00../b", "v1..2", "100%",
		"a\x00b", "a%00b", "a%2500b", "%252E%252E/x", "..%5C", "%2E%5C", "%252E%255C",
	}
	var b bytes.Buffer
	w, err := evallog.NewArchive(&b, header())
	require.NoError(t, err)
	for _, id := range ids {
		require.NoError(t, w.Sample(sample(evallog.ID{Text: id}, 1)))
	}
	require.NoError(t, w.Close(nil))
	read, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	names := map[string]bool{}
	for _, f := range read.File {
		assert.False(t, names[f.Name], "%q occurs twice", f.Name)
		names[f.Name] = true
		segments := strings.FieldsFunc(f.Name, func(r rune) bool { return r == '/' || r == '\\' })
		assert.NotContains(t, segments, "..", "%q", f.Name)
		assert.NotContains(t, f.Name, "\x00")
	}
	for _, id := range []string{"a/b", "/etc/x", "v1..2", "100%"} {
		assert.Contains(t, names, "samples/"+id+"_epoch_1.json", "it is found by its id")
	}
}
