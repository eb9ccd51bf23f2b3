package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// readLog is the output of testdata/readlogs.py for a log.
type readLog struct {
	File   string
	Task   string
	TaskID string `json:"task_id"`
	Header struct {
		Status string
		Eval   struct {
			Task, Model string
			Revision    struct {
				Type, Commit, Origin string
				Dirty                bool
			}
			Dataset struct {
				SampleIDs []any `json:"sample_ids"`
			}
			Config  struct{ Epochs int }
			Sandbox struct{ Type string }
		}
		Results *struct {
			Total     int `json:"total_samples"`
			Completed int `json:"completed_samples"`
			Headline  struct{ Scorer, Score, Metric string }
			Scores    []struct {
				Name    string
				Metrics map[string]struct{ Value any }
			}
		}
		Stats struct {
			Started    string                        `json:"started_at"`
			Completed  string                        `json:"completed_at"`
			ModelUsage map[string]map[string]float64 `json:"model_usage"`
			RoleUsage  map[string]map[string]float64 `json:"role_usage"`
		}
		Error *struct{ Message string }
	}
	HeaderIsThatOfTheWhole bool `json:"header_is_that_of_the_whole"`
	Reductions             []struct {
		Scorer  string
		Samples []struct {
			ID    any `json:"sample_id"`
			Value any
		}
	}
	Samples   []readSample
	Summaries []struct {
		ID, Error, Limit any
		UUID             string
		Epoch, Messages  int
		Completed        bool
	}
	Streamed    [][]any
	Attachments int
	Unresolved  int
	RoundTrip   bool `json:"round_trip"`
}

type readSample struct {
	ID                any
	Epoch             int
	UUID              string
	Input, Target     any
	Metadata          object
	Messages          []readMessage
	Completion        string
	Scores            map[string]struct{ Value, Answer any }
	Events            []object
	OpenSpans         []string `json:"open_spans"`
	Pending           []string
	EventsAreDistinct bool `json:"events_are_distinct"`
	Usage             map[string]map[string]float64
	Error             any
	Traceback         string
	Retries           []string
	Limit             []any
	Turns             int
	Sandbox           any
	Files             []string
	Store             object
	Started           string
	Completed         string
}

type readMessage struct {
	ID, Role, Text string
	Calls          [][]any
	Error          any
}

// readLogs reads all logs of a folder with inspect_ai.
func readLogs(t *testing.T, folder string) map[string]readLog {
	t.Helper()
	out := inspect(t, "python", "testdata/readlogs.py", folder)
	var all []readLog
	require.NoError(t, json.Unmarshal(out, &all))
	byFile := map[string]readLog{}
	for _, l := range all {
		byFile[l.File] = l
	}
	return byFile
}

// inspect runs a program of inspect_ai's environment.
func inspect(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	venv, err := filepath.Abs(filepath.Join(repository, ".tools", "venv-inspect"))
	require.NoError(t, err)
	if !exists(filepath.Join(venv, "requirements.stamp")) {
		t.Skip("inspect_ai is not there; make setup fetches it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience) // Its imports alone take seconds of processor time.
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(venv, "bin", program), args...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "INSPECT_DISPLAY=none"}
	var complaints strings.Builder
	c.Stderr = &complaints
	out, err := c.Output()
	require.NoError(t, err, "%s %v\n%s", program, args, &complaints)
	return out
}

// logged is an evaluation with everything that a log may contain: an agent, a sample that fails and is retried, one
// that reaches a limit, ids and inputs of every kind.
func logged(t *testing.T) *agentv1.EvalSpec {
	t.Helper()
	words := strings.Repeat("long enough to stand in a log only once ", 5)
	return &agentv1.EvalSpec{
		Revision: &agentv1.Revision{Commit: "0a1b2c3", Origin: "https://example.org/tasks.git", Dirty: true},
		Task:     "logged_task", TaskVersion: "2", Tags: []string{"first"}, MetadataJson: `{"about":{"logs":[1,2.5,null]}}`,
		Dataset: &agentv1.Dataset{Name: "kinds", Source: &agentv1.Dataset_Inline{Inline: &agentv1.SampleList{Samples: []*agentv1.Sample{
			{Id: "7", IntegerId: true, InputText: true, Input: []*modelv1.ChatMessage{chat.User("Say yes.")}, Target: &agentv1.Target{Values: []string{"yes"}}, MetadataJson: `{"n":1}`},
			{
				Id: "a/b ü", Input: []*modelv1.ChatMessage{chat.System("Be brief. " + words), chat.User("Look around.")},
				Target: &agentv1.Target{Values: []string{"done", "finished"}, List: true}, Files: map[string]*agentv1.SampleFile{"note.txt": {Body: &agentv1.SampleFile_Text{Text: "a note"}}},
			},
			{Id: "long", InputText: true, Input: []*modelv1.ChatMessage{chat.User("Go on for ever.")}, Target: &agentv1.Target{Values: []string{"x"}}},
			{Id: "broken", InputText: true, Input: []*modelv1.ChatMessage{chat.User("Break.")}, Target: &agentv1.Target{Values: []string{"x"}}},
		}}}},
		Steps: react("bash"), Scorers: []*agentv1.ScorerRef{{Name: "match"}, {Name: "includes"}}, Epochs: &agentv1.Epochs{Count: new(int32(2))},
		Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {}},
		Limits:    &agentv1.RunLimits{Turns: new(int32(3))}, RetryOnError: 1,
		FailOnError: &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{Enabled: false}},
		Models: []*agentv1.ModelRef{scripted(t,
			object{"sample": "7", "outputs": []any{
				object{"text": "I look first. " + words, "tool_calls": []any{object{"function": "bash", "arguments": object{"command": "echo hello"}}}},
				object{"tool_calls": []any{object{"function": "bash", "arguments": object{"nonsense": 1}}}},
				object{
					"tool_calls": []any{object{"function": "submit", "arguments": object{"answer": "yes"}}},
					"error":      object{"status": 429, "message": "busy for now", "times": 1, "retry_after_s": 0.01},
				},
			}},
			object{"sample": "a/b ü", "output": object{"text": "thinking", "reasoning": words, "tool_calls": []any{object{"function": "submit", "arguments": object{"answer": "done"}}}}},
			object{"sample": "long", "output": object{"tool_calls": []any{object{"function": "bash", "arguments": object{"command": "true"}}}}},
			object{"sample": "broken", "output": object{"error": object{"status": 400, "message": "broken on purpose"}}},
		)},
	}
}

// export writes the log of an evaluation with the command line and returns the file's name.
func (h *home) export(t *testing.T, eval, folder string, args ...string) string {
	t.Helper()
	s := h.run(append([]string{"logs", "export", eval, "-o", folder}, args...)...)
	require.Zero(t, s.code, s.err)
	return filepath.Base(strings.TrimSpace(s.out))
}

func TestInspectReadsExportedLogs(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	c := h.serve()
	folder := t.TempDir()

	done := c.await(t, c.create(t, logged(t)))
	archive, document := h.export(t, done.GetName(), folder), h.export(t, done.GetName(), folder, "--format", "json")

	stuck := c.create(t, asked(2, scripted(t, object{"sample": "question-1", "output": "yes"}, object{"sample": "question-2", "output": object{"text": "yes", "delay_s": 600}})))
	c.until(t, stuck, func(e *agentv1.Event) bool { return e.GetSampleFinished() != nil })
	running := h.export(t, stuck, folder)
	require.NoError(t, os.Rename(filepath.Join(folder, running), filepath.Join(folder, "running.eval"))) // The same evaluation has the same name.
	_, err := c.evals.CancelEval(within(t), &agentv1.CancelEvalRequest{Name: stuck})
	require.NoError(t, err)
	c.await(t, stuck)
	cancelled := h.export(t, stuck, folder)

	wrong := c.await(t, c.create(t, asked(1, scripted(t, object{"error": object{"status": 400, "message": "refused on purpose"}}))))
	failed := h.export(t, wrong.GetName(), folder)

	logs := readLogs(t, folder)
	require.Len(t, logs, 5)
	for file, log := range logs {
		assert.True(t, log.RoundTrip, "%s: writing what was read gives the same log", file)
		assert.True(t, log.HeaderIsThatOfTheWhole, file)
		assert.Zero(t, log.Unresolved, "%s: every attachment is found", file)
		assert.Len(t, log.Summaries, len(log.Samples), file)
		assert.Len(t, log.Streamed, len(log.Samples), file)
		for _, s := range log.Samples {
			assert.True(t, s.EventsAreDistinct, file)
			assert.Empty(t, s.OpenSpans, file)
			assert.Empty(t, s.Pending, file)
		}
	}

	t.Run("archive", func(t *testing.T) { c.compare(t, done, logs[archive]) })
	t.Run("document", func(t *testing.T) { c.compare(t, done, logs[document]) })
	t.Run("dump", func(t *testing.T) {
		var dumped struct{ Samples []object }
		require.NoError(t, json.Unmarshal(inspect(t, "inspect", "log", "dump", filepath.Join(folder, archive)), &dumped))
		assert.Len(t, dumped.Samples, 8)
	})
	t.Run("viewer", func(t *testing.T) {
		var viewed []struct {
			File, Status, Task string
			Samples            [][4]any
			Size, Bytes        int64
		}
		require.NoError(t, json.Unmarshal(inspect(t, "python", "testdata/viewlogs.py", folder), &viewed))
		require.Len(t, viewed, len(logs))
		for _, v := range viewed {
			log := logs[v.File]
			assert.Equal(t, log.Header.Status, v.Status, v.File)
			assert.Equal(t, log.Header.Eval.Task, v.Task, v.File)
			assert.Equal(t, v.Size, v.Bytes, v.File)
			require.Len(t, v.Samples, len(log.Samples), v.File)
			for i, s := range log.Samples {
				assert.Equal(t, [4]any{s.ID, float64(s.Epoch), float64(len(s.Messages)), float64(len(s.Events))}, v.Samples[i], v.File)
			}
		}
	})
	t.Run("running", func(t *testing.T) {
		log := logs["running.eval"]
		assert.Equal(t, "started", log.Header.Status)
		assert.Nil(t, log.Header.Results)
		require.Len(t, log.Samples, 1)
		assert.Equal(t, "question-1", log.Samples[0].ID)
		assert.Empty(t, log.Header.Stats.Completed)
	})
	t.Run("cancelled", func(t *testing.T) {
		log := logs[cancelled]
		assert.Equal(t, "cancelled", log.Header.Status)
		require.NotNil(t, log.Header.Results)
		assert.Equal(t, 2, log.Header.Results.Total)
		assert.Equal(t, 1, log.Header.Results.Completed)
		require.Len(t, log.Samples, 2)
		assert.Nil(t, log.Samples[0].Error)
		assert.Contains(t, log.Samples[1].Error, "cancelled")
	})
	t.Run("failed", func(t *testing.T) {
		log := logs[failed]
		assert.Equal(t, "error", log.Header.Status)
		require.NotNil(t, log.Header.Error)
		assert.Equal(t, wrong.GetError().GetMessage(), log.Header.Error.Message)
		assert.Contains(t, log.Samples[0].Error, "refused on purpose")
	})
}

// compare compares a log with the platform's own answers about the evaluation.
func (c *client) compare(t *testing.T, eval *agentv1.Eval, log readLog) {
	t.Helper()
	id := eval.GetName()[strings.LastIndexByte(eval.GetName(), '/')+1:]
	assert.Equal(t, "logged-task", log.Task)
	assert.Equal(t, id, log.TaskID)
	assert.Equal(t, "success", log.Header.Status)
	assert.Equal(t, "mockllm/model", log.Header.Eval.Model)
	assert.Equal(t, []any{7.0, "a/b ü", "long", "broken"}, log.Header.Eval.Dataset.SampleIDs)
	assert.Equal(t, 2, log.Header.Eval.Config.Epochs)
	assert.Equal(t, "local", log.Header.Eval.Sandbox.Type, "the driver that the server chose")
	assert.Equal(t, struct{ Scorer, Score, Metric string }{"match", "match", "accuracy"}, log.Header.Results.Headline)
	revision := log.Header.Eval.Revision
	assert.Equal(t, []any{"git", "0a1b2c3", "https://example.org/tasks.git", true}, []any{revision.Type, revision.Commit, revision.Origin, revision.Dirty})
	assert.NotEmpty(t, log.Header.Stats.Started)
	assert.NotEmpty(t, log.Header.Stats.Completed)
	assert.Positive(t, log.Attachments)
	assert.Len(t, log.Reductions, 2)

	results := log.Header.Results
	require.NotNil(t, results)
	assert.EqualValues(t, eval.GetResults().GetTotalSamples(), results.Total)
	assert.EqualValues(t, eval.GetResults().GetCompletedSamples(), results.Completed)
	require.Len(t, results.Scores, len(eval.GetResults().GetScores()))
	for i, s := range eval.GetResults().GetScores() {
		assert.Equal(t, s.GetName(), results.Scores[i].Name)
		for _, m := range s.GetMetrics() {
			assert.InDelta(t, m.GetValue(), results.Scores[i].Metrics[m.GetKey()].Value, 1e-12)
		}
	}
	sameUsage(t, eval.GetUsage(), log.Header.Stats.ModelUsage)
	sameUsage(t, eval.GetRoleUsage(), log.Header.Stats.RoleUsage)

	samples := c.samples(t, eval.GetName())
	require.Len(t, log.Samples, len(samples))
	for _, want := range samples {
		at := slices.IndexFunc(log.Samples, func(s readSample) bool { return strings.HasSuffix(want.GetRun(), "/"+s.UUID) })
		require.GreaterOrEqual(t, at, 0, want.GetName())
		c.compareSample(t, want, log.Samples[at])
	}
	c.compareTalk(t, log)
}

func sameUsage(t *testing.T, want map[string]*modelv1.ModelUsage, got map[string]map[string]float64) {
	t.Helper()
	assert.Len(t, got, len(want))
	for model, u := range want {
		assert.InDelta(t, u.GetInputTokens(), got[model]["input_tokens"], 0)
		assert.InDelta(t, u.GetOutputTokens(), got[model]["output_tokens"], 0)
		assert.InDelta(t, u.GetTotalTokens(), got[model]["total_tokens"], 0)
	}
}

func (c *client) compareSample(t *testing.T, want *agentv1.EvalSample, got readSample) {
	t.Helper()
	run, err := c.runs.GetRun(within(t), &agentv1.GetRunRequest{Name: want.GetRun(), View: agentv1.RunView_RUN_VIEW_FULL})
	require.NoError(t, err)
	if want.GetIntegerId() {
		assert.InDelta(t, 7, got.ID, 0)
	} else {
		assert.Equal(t, want.GetId(), got.ID)
	}
	assert.EqualValues(t, want.GetEpoch(), got.Epoch)
	assert.EqualValues(t, run.GetTurns(), got.Turns)
	assert.Equal(t, chat.Completion(run.GetOutput()), got.Completion)
	assert.Equal(t, "local", got.Sandbox)
	sameUsage(t, run.GetUsage(), got.Usage)
	require.Len(t, got.Messages, len(run.GetMessages()))
	for i, m := range run.GetMessages() {
		assert.Equal(t, m.GetId(), got.Messages[i].ID)
		assert.Equal(t, chat.Text(m), got.Messages[i].Text)
		assert.Equal(t, strings.ToLower(strings.TrimPrefix(m.GetRole().String(), "ROLE_")), got.Messages[i].Role)
		require.Len(t, got.Messages[i].Calls, len(m.GetToolCalls()))
		for n, call := range m.GetToolCalls() {
			assert.Equal(t, call.GetFunction(), got.Messages[i].Calls[n][0])
		}
	}
	assert.Len(t, got.Scores, len(want.GetScores()))
	for _, s := range want.GetScores() {
		assert.Equal(t, s.GetScore().GetValue().GetText(), got.Scores[s.GetName()].Value)
	}
	if e := want.GetError(); e != nil {
		assert.Equal(t, e.GetMessage(), got.Error)
	} else {
		assert.Nil(t, got.Error)
	}
	assert.Len(t, got.Retries, int(want.GetAttempts())-1)
	if l := want.GetLimit(); l != nil {
		assert.Equal(t, []any{enum.Word(l.GetType()), l.GetLimit()}, got.Limit)
	} else {
		assert.Empty(t, got.Limit)
	}
}

// compareTalk compares the events of the sample that has everything with its script.
func (c *client) compareTalk(t *testing.T, log readLog) {
	t.Helper()
	first := log.Samples[slices.IndexFunc(log.Samples, func(s readSample) bool { return s.ID == 7.0 })]
	assert.Equal(t, "Say yes.", first.Input)
	assert.Equal(t, object{"n": 1.0}, first.Metadata)
	var kinds, spans []string
	models, tools := []object{}, []object{}
	for _, e := range first.Events {
		kinds = append(kinds, fmt.Sprint(e["event"]))
		switch e["event"] {
		case "span_begin":
			spans = append(spans, fmt.Sprint(at(e, "span", 0), " ", at(e, "span", 1)))
		case "model":
			models = append(models, e)
		case "tool":
			tools = append(tools, e)
		case "score":
			assert.InDelta(t, first.Usage["mockllm/model"]["total_tokens"], at(e, "usage", "mockllm/model", "total_tokens"), 0)
		case "sandbox":
			assert.Equal(t, "exec", at(e, "action", 0))
			assert.Contains(t, at(e, "action", 1), "echo hello")
			assert.InDelta(t, 0, at(e, "action", 2), 0)
		}
	}
	assert.Equal(t, strings.Fields(`span_begin sample_init span_end span_begin span_begin span_begin
		model span_begin tool sandbox span_end model span_begin tool span_end model model span_begin tool span_end span_end state span_end span_end
		span_begin span_begin score span_end span_begin score span_end span_end`), kinds)
	assert.Equal(t, []string{"init init", "solvers solvers", "solver react", "agent react", "tool bash", "tool bash", "tool submit", "scorers scorers", "scorer match", "scorer includes"}, spans)
	retried := models[2]
	assert.Contains(t, retried["error"], "busy for now")
	assert.Contains(t, retried["traceback"], "turn 3, call of the model mockllm/model\n  attempt 1\n")
	assert.Equal(t, "busy for now", at(retried, "call", "response", "error", "message"))
	assert.Nil(t, retried["usage"])
	assert.Equal(t, models[3]["input"], retried["input"])
	models = slices.Delete(models, 2, 3)
	used := 0.
	for _, m := range models {
		tokens, _ := at(m, "usage", "total_tokens").(float64)
		used += tokens
	}
	assert.InDelta(t, first.Usage["mockllm/model"]["total_tokens"], used, 0)
	for i, m := range models {
		asked := []any{}
		for _, message := range first.Messages[:2*i+2] { // The prompt and the question, then a call and its result each time.
			asked = append(asked, message.ID)
		}
		assert.Equal(t, asked, m["input"], "what the model was given in call %d", i+1)
	}
	assert.Equal(t, "hello\n", tools[0]["result"])
	assert.Equal(t, "parsing", at(tools[1], "error", 0))
	assert.Equal(t, first.Messages[3].ID, tools[0]["message"])
	assert.Contains(t, at(tools[0], "view", "content"), "echo hello", "the call is shown as its tool shows it")

	broken := log.Samples[slices.IndexFunc(log.Samples, func(s readSample) bool { return s.ID == "broken" })]
	assert.Contains(t, broken.Traceback, "turn 1, call of the model mockllm/model\nPROVIDER_REJECTED: mockllm answered 400: broken on purpose")
	failed := broken.Events[slices.IndexFunc(broken.Events, func(e object) bool { return e["event"] == "model" })]
	assert.Equal(t, broken.Traceback, failed["traceback"])
	assert.Equal(t, true, at(failed, "call", "error"))
	assert.Equal(t, "broken on purpose", at(failed, "call", "response", "error", "message"))
	assert.Equal(t, "Break.", at(failed, "call", "request", "messages", 1, "content"))

	other := log.Samples[slices.IndexFunc(log.Samples, func(s readSample) bool { return s.ID == "a/b ü" })]
	assert.Equal(t, []any{"done", "finished"}, other.Target)
	assert.Equal(t, []string{"note.txt"}, other.Files)
	assert.Contains(t, at(other.Input, 0, "text"), "only once")
}

func TestExportOverRESTAndItsFaults(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		eval := c.await(t, c.create(t, asked(1, scripted(t, "yes"))))
		folder := t.TempDir()
		file := filepath.Join(folder, h.export(t, eval.GetName(), folder))

		same, err := os.ReadFile(file)
		require.NoError(t, err)
		status, answer := h.rest().do(t, "GET", "/api/v1/"+eval.GetName()+":export", nil)
		require.Equal(t, 200, status)
		assert.Equal(t, string(same), answer, "an evaluation that has ended has one log")
		status, answer = h.rest().do(t, "GET", "/api/v1/"+eval.GetName()+":export", nil, "Accept: application/json")
		require.Equal(t, 200, status)
		var content []byte
		for line := range strings.Lines(answer) {
			chunk, err := base64.StdEncoding.DecodeString(fmt.Sprint(at(parsed(t, line), "result", "chunk")))
			require.NoError(t, err)
			content = append(content, chunk...)
		}
		assert.Equal(t, same, content, "as lines of JSON too")

		for name, c := range map[string]struct {
			args []string
			code int
			says string
		}{
			"no such evaluation":    {[]string{"logs", "export", "nothing", "-o", folder}, 1, "no projects/default/evals/nothing"},
			"the file exists":       {[]string{"logs", "export", eval.GetName(), "-o", folder}, 1, "exists; --force replaces it"},
			"an unknown format":     {[]string{"logs", "export", eval.GetName(), "--format", "xml"}, 2, "--format xml: write eval or json"},
			"an unknown model":      {[]string{"logs", "export", eval.GetName(), "--model", "x/y"}, 2, "--model x/y"},
			"a folder below a file": {[]string{"logs", "export", eval.GetName(), "-o", filepath.Join(file, "no", "log.eval")}, 1, "not a directory"},
		} {
			s := h.run(c.args...)
			assert.Equal(t, c.code, s.code, name)
			assert.Contains(t, s.err, c.says, name)
		}
		assert.Zero(t, h.run("logs", "export", eval.GetName(), "-o", folder, "--force").code)
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		assert.Len(t, entries, 1, "nothing half-written is left")

		s := h.run("logs", "export", eval.GetName(), "--format", "json", "-o", "-")
		assert.Equal(t, "asked", at(parsed(t, s.out), "eval", "task"))
		s = h.run("logs", "export", eval.GetName(), "-o", folder, "--force", "--json")
		assert.InDelta(t, 1, parsed(t, s.out)["samples"], 0)

		two := asked(1, scripted(t, "yes"))
		two.Models = append(two.Models, &agentv1.ModelRef{Model: "mockllm/other"})
		several := c.await(t, c.create(t, two)).GetName()
		both := t.TempDir()
		require.Zero(t, h.run("logs", "export", several, "-o", both).code)
		files, err := filepath.Glob(filepath.Join(both, "*_asked_*m[12].eval"))
		require.NoError(t, err)
		assert.Len(t, files, 2, "a log is about one model")
		s = h.run("logs", "export", several, "-o", filepath.Join(both, "log.eval"))
		assert.Equal(t, 2, s.code)
		assert.Contains(t, s.err, "there is a log for each of 2 models")
		assert.Zero(t, h.run("logs", "export", several, "-o", filepath.Join(both, "log.eval"), "--model", "mockllm/other").code)
		status, answer = h.rest().do(t, "GET", "/api/v1/"+several+":export", nil)
		assert.Equal(t, 400, status)
		assert.Contains(t, answer, "2 mockllm/other")

		status, answer = h.rest().do(t, "GET", "/api/v1/"+eval.GetName()+":export?format=xml", nil)
		assert.Equal(t, 400, status)
		assert.Contains(t, answer, "known: eval, json")
	})
}
