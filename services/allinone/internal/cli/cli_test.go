package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// task writes a task file with a dataset of that many bytes and returns its path.
func task(t *testing.T, datasetBytes int) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(strings.Repeat("x", datasetBytes)), 0o600))
	path := filepath.Join(dir, "task.yaml")
	require.NoError(t, os.WriteFile(path, []byte("dataset: rows.jsonl\nmodel: mockllm/model\nsandbox: true\nscorer: match\n"), 0o600))
	return path
}

// at is the evaluation in a state with that many of four samples done.
func at(state agentv1.EvalState, done int32) *agentv1.Eval {
	e := &agentv1.Eval{
		Name: "projects/default/evals/e1", State: state,
		Spec:     &agentv1.EvalSpec{Task: "sums", TaskFile: "task.yaml", Models: []*agentv1.ModelRef{{Model: "mockllm/model"}}},
		Progress: &agentv1.EvalProgress{Total: 4, Succeeded: done, Running: 4 - done, TotalTokens: 1200},
	}
	if state == agentv1.EvalState_EVAL_STATE_SUCCEEDED {
		e.Results = &agentv1.EvalResults{TotalSamples: 4, CompletedSamples: 4, Scores: []*agentv1.ScoreResult{
			{Name: "match", ScoredSamples: 4, Metrics: []*agentv1.MetricResult{{Key: "accuracy", Value: new(0.75)}, {Key: "stderr", Value: new(0.25)}}},
		}}
	}
	return e
}

const (
	running   = agentv1.EvalState_EVAL_STATE_RUNNING
	succeeded = agentv1.EvalState_EVAL_STATE_SUCCEEDED
	failed    = agentv1.EvalState_EVAL_STATE_FAILED
	cancelled = agentv1.EvalState_EVAL_STATE_CANCELLED
)

// finishes is a watch that reports the end at once.
func finishes(s *server, state agentv1.EvalState) func(int, *agentv1.WatchEvalRequest, agentv1.EvalService_WatchEvalServer) error {
	return func(_ int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
		if err := stream.Send(&agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Progress{Progress: at(running, 2)}}); err != nil {
			return err
		}
		return stream.Send(&agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Progress{Progress: s.become(at(state, 4))}})
	}
}

func TestEvalRunFollowsToTheResults(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	s.watch = finishes(s, succeeded)
	flags := serve(t, s)
	file := task(t, 10)
	c := begin(t, append(flags, "eval", "run", file, "-m", "a/b", "-m", "c/d", "-M", "x=1", "--limit", "1:3", "--epochs", "2", "--max-samples", "3",
		"--driver", "local", "--tag", "t", "--set", "limits.turns=5", "--set", "scorer=includes")...)
	assert.Equal(t, 0, c.end(t), c.stderr.String())

	spec := s.created.GetSpec()
	assert.Equal(t, []string{"a/b", "c/d"}, []string{spec.GetModels()[0].GetModel(), spec.GetModels()[1].GetModel()})
	assert.Equal(t, `{"x":1}`, spec.GetModels()[1].GetModelArgsJson())
	assert.Equal(t, []int32{1, 3}, []int32{spec.GetLimit().GetStart(), spec.GetLimit().GetEnd()})
	assert.Equal(t, int32(2), spec.GetEpochs().GetCount())
	assert.Equal(t, int32(3), spec.GetMaxSamples())
	assert.Equal(t, "local", spec.GetSandboxes()["default"].GetDriver())
	assert.False(t, spec.GetSandboxes()["default"].GetAllowUnisolated())
	assert.Equal(t, []string{"t"}, spec.GetTags())
	assert.Equal(t, int32(5), spec.GetLimits().GetTurns())
	assert.Equal(t, "includes", spec.GetScorers()[0].GetName())
	assert.NotEmpty(t, s.created.GetRequestId())
	assert.Contains(t, s.bodies, spec.GetDataset().GetFile().GetBlob().GetHash(), "the dataset was uploaded first")

	assert.Contains(t, c.stderr.String(), "4/4 done")
	assert.Equal(t, `projects/default/evals/e1 · sums · succeeded
model mockllm/model · 4 samples · 1.2k tokens

SCORER  SAMPLES  ACCURACY  STDERR
match   4        0.750     0.250

log       evalfleet logs e1 FLAGS
next      evalfleet eval run FILE --driver local --epochs 2 --max-samples 3 --set limits.turns=5 --set scorer=includes --tag t -m openai/gpt-4o --limit 5 FLAGS
          once the server was started where OPENAI_API_KEY is set
`, strings.NewReplacer(strings.Join(flags, " "), "FLAGS", file, "FILE").Replace(c.stdout.String()))
}

func TestBodiesThatAreThereAreNotSentAgain(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	s.watch = finishes(s, succeeded)
	flags := serve(t, s)
	file := task(t, 5<<20)
	require.Equal(t, 0, begin(t, append(flags, "eval", "run", file)...).end(t))
	require.Len(t, s.bodies, 1)
	for hash := range s.bodies {
		assert.Len(t, s.bodies[hash], 5<<20, "a large body goes in chunks")
		s.bodies[hash] = nil
	}
	s.become(at(running, 0))
	require.Equal(t, 0, begin(t, append(flags, "eval", "run", file)...).end(t))
	for hash := range s.bodies {
		assert.Nil(t, s.bodies[hash])
	}
}

// An evaluation that succeeded although samples failed can be gone on with: those run again.
func TestFailedSamplesOfASuccessSayHowToGoOn(t *testing.T) {
	t.Parallel()
	e := at(succeeded, 3)
	e.Progress.Running, e.Progress.Failed = 0, 1
	c := begin(t, append(serve(t, &server{eval: e}), "eval", "show", "e1")...)
	assert.Equal(t, 0, c.end(t))
	assert.Contains(t, c.stdout.String(), "go on     evalfleet eval resume e1")
	c = begin(t, append(serve(t, &server{eval: at(succeeded, 4)}), "eval", "show", "e1")...)
	assert.Equal(t, 0, c.end(t))
	assert.NotContains(t, c.stdout.String(), "eval resume")
}

func TestAFailedEvaluationFailsTheCommand(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	s.watch = finishes(s, failed)
	c := begin(t, append(serve(t, s), "eval", "run", task(t, 1))...)
	assert.Equal(t, 1, c.end(t))
	assert.Contains(t, c.stdout.String(), "go on     evalfleet eval resume e1")
}

func TestJSONIsALinePerThing(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	s.watch = finishes(s, succeeded)
	c := begin(t, append(serve(t, s), "--json", "eval", "run", task(t, 1))...)
	require.Equal(t, 0, c.end(t))
	assert.Empty(t, c.stderr.String())
	lines := strings.Split(strings.TrimSpace(c.stdout.String()), "\n")
	require.Len(t, lines, 3)
	var last struct{ Eval struct{ Name, State string } }
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &last))
	assert.Equal(t, "EVAL_STATE_SUCCEEDED", last.Eval.State)
	assert.Contains(t, lines[0], `"progress"`)
}

func TestABrokenWatchGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	var cursors []string
	s.watch = func(n int, req *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
		cursors = append(cursors, req.GetCursor())
		if n == 0 {
			if err := stream.Send(&agentv1.WatchEvalResponse{Cursor: "c7", Update: &agentv1.WatchEvalResponse_Event{Event: &agentv1.Event{Seq: 7}}}); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "going down")
		}
		return finishes(s, succeeded)(n, req, stream)
	}
	c := begin(t, append(serve(t, s), "eval", "run", task(t, 1))...)
	require.Equal(t, 0, c.end(t), c.stderr.String())
	assert.Equal(t, []string{"", "c7"}, cursors)
}

// waits is a watch that reports nothing until the evaluation is cancelled, and then its end.
func waits(s *server, watching chan<- bool) func(int, *agentv1.WatchEvalRequest, agentv1.EvalService_WatchEvalServer) error {
	return func(n int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
		if n == 0 {
			watching <- true
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		return stream.Send(&agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Progress{Progress: s.become(at(cancelled, 1))}})
	}
}

func TestAnInterruptCancelsAndTellsHowToGoOn(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	watching := make(chan bool, 1)
	s.watch = waits(s, watching)
	c := begin(t, append(serve(t, s), "eval", "run", task(t, 1))...)
	waittest.For(t, watching, "the watch of the evaluation")
	c.signals <- os.Interrupt
	assert.Equal(t, 130, c.end(t))
	assert.Equal(t, "interrupted", waittest.For(t, s.cancelled, "the cancel of the evaluation"))
	assert.Contains(t, c.stderr.String(), "cancelling e1; interrupt again to leave at once")
	assert.Contains(t, c.stdout.String(), "go on     evalfleet eval resume e1")
}

func TestCancelTellsWhatBecameOfTheEvaluation(t *testing.T) {
	t.Parallel()
	for state, says := range map[agentv1.EvalState]string{
		cancelled: "evalfleet eval resume e1", failed: "evalfleet eval resume e1", succeeded: "e1 has succeeded; there is nothing to cancel",
		running: "e1 is being cancelled",
	} {
		s := &server{eval: at(state, 1)}
		c := begin(t, append(serve(t, s), "eval", "cancel", "e1")...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Contains(t, c.stdout.String(), says)
		assert.Equal(t, state == cancelled || state == failed, strings.Contains(c.stdout.String(), "resume"))
	}
}

func TestShowCountsOnlyWhatCameToItsEnd(t *testing.T) {
	t.Parallel()
	for says, p := range map[string]*agentv1.EvalProgress{
		"12 samples · 6 done · 3 not begun · 3 cancelled":                      {Total: 12, Pending: 3, Succeeded: 6, Cancelled: 3},
		"12 samples · 3 done, 3 of them failed · 4 not begun · 5 cancelled · ": {Total: 12, Pending: 4, Failed: 3, Cancelled: 5},
		"12 samples · 2 failed · ":                                             {Total: 12, Succeeded: 10, Failed: 2},
	} {
		eval := at(cancelled, 0)
		eval.Progress = p
		c := begin(t, append(serve(t, &server{eval: eval}), "eval", "show", "e1")...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Contains(t, c.stdout.String(), says)
	}
}

func TestTheTimeOfAnEvaluationIsWithoutItsPauses(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for paused, says := range map[time.Duration]string{0: " · 2h0m12.3s · ", 2 * time.Hour: " · 12.3s, without 2h0m0s before it was resumed · "} {
		eval := at(succeeded, 1)
		eval.StartTime, eval.EndTime = timestamppb.New(began), timestamppb.New(began.Add(2*time.Hour+12300*time.Millisecond))
		if paused > 0 {
			eval.PausedTime = durationpb.New(paused)
		}
		c := begin(t, append(serve(t, &server{eval: eval}), "eval", "show", "e1")...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Contains(t, c.stdout.String(), says)
	}
}

func TestTheSecondInterruptLeavesAtOnce(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 0)}
	watching := make(chan bool, 2)
	s.watch = func(_ int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
		watching <- true
		<-stream.Context().Done() // Not even a cancel brings an end.
		return stream.Context().Err()
	}
	c := begin(t, append(serve(t, s), "eval", "run", task(t, 1))...)
	waittest.For(t, watching, "the watch of the evaluation")
	c.signals <- os.Interrupt
	waittest.For(t, watching, "the watch after the cancel")
	c.signals <- os.Interrupt
	assert.Equal(t, 130, c.end(t))
}

func TestAServerThatIsNotThereOrRefuses(t *testing.T) {
	t.Parallel()
	flags := serve(t, &server{eval: at(running, 0)})
	wrong := slices.Clone(flags)
	wrong[3] = tokenFile(t, "wrong")
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"wrong token":  {append(wrong, "eval", "show", "e1"), []string{"the token is not known", "name it with --token-file"}},
		"no token":     {[]string{"--server", flags[1], "eval", "list"}, []string{"no token: there is no file ", "name the server's with --token-file, or set EVALFLEET_TOKEN"}},
		"nobody there": {[]string{"--server", "127.0.0.1:1", "--token-file", flags[3], "eval", "show", "e1"}, []string{"evalfleet: the server cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused\n  is a server running there?"}},
		"token of all": {[]string{"--server", flags[1], "--token-file", open(t), "eval", "list"}, []string{"can be read by others; run chmod 600 on it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := begin(t, tt.args...)
			assert.Equal(t, 3, c.end(t))
			for _, want := range tt.want {
				assert.Contains(t, c.stderr.String(), want)
			}
		})
	}
}

// EVALFLEET_SERVER names the server as --server does, which comes before it.
func TestTheEnvironmentNamesTheServer(t *testing.T) {
	t.Parallel()
	flags := serve(t, &server{eval: at(running, 0)})
	for _, tt := range []struct {
		server string
		args   []string
	}{
		{flags[1], []string{"eval", "list"}},
		{"127.0.0.1:1", []string{"--server", flags[1], "eval", "list"}},
	} {
		c := beginIn(t, map[string]string{"EVALFLEET_SERVER": tt.server, "EVALFLEET_TOKEN_FILE": flags[3]}, strings.NewReader(""), tt.args...)
		assert.Zero(t, c.end(t), "%v: %s", tt, c.stderr.String())
		assert.NotContains(t, c.stderr.String(), "no evaluations")
	}
}

func TestExitCodesTellWhoIsAtFault(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		refusal error
		want    int
	}{
		"the file breaks a rule":      {rpcerr.InvalidField("spec.dataset", "there is no such column"), 2},
		"unknown scorer":              {rpcerr.ScorerNotFound("mtch", nil), 2},
		"unknown solver":              {rpcerr.AgentNotFound("x", nil), 2},
		"unknown tool":                {rpcerr.ToolNotFound("bsh", nil), 2},
		"unknown model":               {rpcerr.ModelNotFound("x", nil, "unknown model"), 2},
		"unknown driver":              {rpcerr.DriverNotFound("x", nil), 2},
		"no such account":             {rpcerr.ProviderNotConfigured("openai-api", "together", "no account"), 2},
		"nothing of that name":        {rpcerr.ResourceNotFound("projects/default/evals/e1"), 1},
		"no right in the sandbox":     {rpcerr.SandboxPermission("/etc/x", "open /etc/x: permission denied"), 1},
		"the operator does not allow": {rpcerr.ActionDenied("sandboxes.unisolated", "host paths are not allowed"), 1},
		"a provider is away":          {rpcerr.ProviderRateLimited("openai", 429, time.Second, "later"), 1},
		"the token is refused":        {rpcerr.Unauthenticated("the token is not known"), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := begin(t, append(serve(t, &server{refusal: tt.refusal}), "eval", "run", task(t, 1))...)
			assert.Equal(t, tt.want, c.end(t), c.stderr.String())
		})
	}
	c := begin(t, append(serve(t, &server{}), "sandbox", "cp", "none.txt", "s1:a")...)
	assert.Equal(t, 2, c.end(t), c.stderr.String())
	assert.Contains(t, c.stderr.String(), "none.txt: no such file")
}

// open is a token that everybody can read.
func open(t *testing.T) string {
	t.Helper()
	path := tokenFile(t, "right")
	require.NoError(t, os.Chmod(path, 0o644))
	return path
}

func TestATextOverTheBoundOfAMessageIsUploaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "big.yaml")
	require.NoError(t, os.WriteFile(path, []byte("model: a/b\ndataset: [{input: "+strings.Repeat("x", 5<<20)+"}]\n"), 0o600))
	s := &server{eval: &agentv1.Eval{Name: "projects/default/evals/e1", Spec: &agentv1.EvalSpec{}}}
	c := begin(t, append(serve(t, s), "eval", "run", "--check", path)...)
	assert.Equal(t, 0, c.end(t), c.stderr.String())
	require.Len(t, s.created.GetOffloaded(), 1)
	assert.Contains(t, s.created.GetOffloaded()[0].GetField(), "spec.dataset.inline.samples[0].input")
}

func TestARequestOverTheLimit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "big.yaml")
	samples := strings.Repeat("  - {input: "+strings.Repeat("x", 500)+"}\n", 10_000)
	require.NoError(t, os.WriteFile(path, []byte("model: a/b\ndataset:\n"+samples), 0o600))
	c := begin(t, append(serve(t, &server{}), "eval", "run", path)...)
	assert.Equal(t, 2, c.end(t))
	assert.Regexp(t, `big.yaml: the request has \d+ bytes and may have 4194304; .*; move the samples into a file`, c.stderr.String())
}

func TestUsage(t *testing.T) {
	t.Parallel()
	file := task(t, 1)
	noModel := filepath.Join(t.TempDir(), "t.yaml")
	require.NoError(t, os.WriteFile(noModel, []byte("dataset: [{input: a}]"), 0o600))
	noYAML := filepath.Join(t.TempDir(), "t.yaml")
	require.NoError(t, os.WriteFile(noYAML, []byte("a: ["), 0o600))
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":      {[]string{"evaluate"}, `evalfleet has no command "evaluate"`},
		"a misspelled command": {[]string{"evl"}, "evalfleet: evalfleet has no command \"evl\"; did you mean eval?\n  see evalfleet --help"},
		"unknown subcommand":   {[]string{"eval", "start"}, `evalfleet eval has no command "start"`},
		"misspelled below":     {[]string{"eval", "runn"}, "evalfleet eval has no command \"runn\"; did you mean run?\n  see evalfleet eval --help"},
		"a number":             {[]string{"eval", "run", file, "--epochs", "two"}, "evalfleet: --epochs two: want a whole number\n  see evalfleet eval run --help"},
		"a huge number":        {[]string{"eval", "run", file, "--max-samples", "99999999999"}, "--max-samples 99999999999: want a whole number"},
		"a time":               {[]string{"run", "hello", "--time", "5"}, "--time 5: want a time, such as 90s or 5m"},
		"a switch":             {[]string{"eval", "list", "--active=perhaps"}, "--active perhaps: want true or false"},
		"no limit":             {[]string{"eval", "run", file, "--limit", ""}, `--limit "": write how many, such as 10, or a range, such as 5:10`},
		"unknown flag":         {[]string{"eval", "run", "--modle", "x", file}, "unknown flag: --modle\n  see evalfleet eval run --help"},
		"no task file":         {[]string{"eval", "run"}, "name a task file, such as examples/demo/task.yaml"},
		"task not there":       {[]string{"eval", "run", "none.yaml"}, "none.yaml: there is no such task file"},
		"two task files":       {[]string{"eval", "run", file, "b.yaml"}, `"b.yaml" is one argument too many`},
		"no model":             {[]string{"eval", "run", noModel}, "names no model; give one with -m PROVIDER/MODEL"},
		"limit":                {[]string{"eval", "run", file, "--limit", "3:2"}, "--limit \"3:2\": write how many, such as 10, or a range, such as 5:10"},
		"limit and ids":        {[]string{"eval", "run", file, "--limit", "3", "--sample-id", "a"}, "--limit and --sample-id exclude each other"},
		"model argument":       {[]string{"eval", "run", file, "-M", "x"}, `-M "x": write name=value`},
		"set":                  {[]string{"eval", "run", file, "--set", "x"}, `--set "x" changes nothing; write key=value, such as samples.limit=5`},
		"server":               {[]string{"--server", "here", "--token-file", tokenFile(t, "x"), "eval", "list"}, "--server here is no address; write host:port, such as 127.0.0.1:7460"},
		"run without prompt":   {[]string{"run"}, "give a prompt, or - to read it from standard input"},
		"run without model":    {[]string{"run", "hello"}, "no model; give one with --model PROVIDER/MODEL"},
		"a model's name alone": {[]string{"eval", "run", file, "-m", "gpt-4o"}, `"gpt-4o" is no model; did you mean openai/gpt-4o?`},
		"a new model's name":   {[]string{"run", "hello", "-m", "claude-9"}, `"claude-9" is no model; did you mean anthropic/claude-9?`},
		"task argument":        {[]string{"eval", "run", file, "-T", "a=b"}, "a task file has no arguments; --set KEY=VALUE changes a key of it"},
		"option of the model":  {[]string{"eval", "run", file, "--max-tokens", "5"}, "unknown flag: --max-tokens: it is an option of the model; write --set config.max_tokens=VALUE"},
		"YAML":                 {[]string{"eval", "run", noYAML}, "it cannot be read as YAML: yaml: line 1: did not find expected node content\n  docs/task-file.md describes task files"},
		"copy nowhere":         {[]string{"sandbox", "cp", "a", "b"}, "one of a and b must be SANDBOX:PATH"},
		"copy between two":     {[]string{"sandbox", "cp", "a:x", "b:y"}, "a:x and b:y are both in sandboxes; copy to a file here first"},
		"exec flag":            {[]string{"sandbox", "exec", "s1", "--timeuot", "1s", "--", "ls"}, "unknown flag: --timeuot"},
		"exec without dashes":  {[]string{"sandbox", "exec", "s1", "ls"}, "write -- between the sandbox and the program: s1 -- ls"},
		"exec too many":        {[]string{"sandbox", "exec", "s1", "s2", "--", "ls"}, `"s2" is one argument too many; the program follows --`},
		"exec nothing":         {[]string{"sandbox", "exec", "s1"}, "name a sandbox and a program"},
		"target":               {[]string{"serve", "--target", "x"}, `target: unknown service "x"; known: modelgw, toolexec, sandboxd, agentorch, gateway`},
		"listen":               {[]string{"serve", "--listen", "7460"}, "listen: write host:port, such as 127.0.0.1:7460"},
		"config":               {[]string{"--config", "none.yaml", "serve"}, "none.yaml: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := begin(t, tt.args...)
			assert.Equal(t, 2, c.end(t))
			assert.Contains(t, c.stderr.String(), "evalfleet: ")
			assert.Contains(t, c.stderr.String(), tt.want)
		})
	}
}

func TestErrorsAreJSONWhenAskedFor(t *testing.T) {
	t.Parallel()
	flags := serve(t, &server{})
	flags[3] = tokenFile(t, "wrong")
	c := begin(t, append(flags, "--json", "eval", "show", "e1")...)
	assert.Equal(t, 3, c.end(t))
	assert.JSONEq(t, `{"error": {"message": "the token is not known", "reason": "TOKEN_INVALID", "exit": 3}}`, c.stderr.String())
}

func TestEveryCommandTeaches(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"", "serve", "eval", "eval run", "eval list", "eval show", "eval cancel", "eval resume", "eval delete",
		"run", "run list", "run show", "run cancel", "run resume", "run watch", "run delete",
		"logs", "logs export", "models", "tools", "sandbox", "sandbox ls", "sandbox exec", "sandbox cp", "sandbox rm", "version",
	} {
		c := begin(t, append(strings.Fields(command), "--help")...)
		assert.Equal(t, 0, c.end(t), command)
		assert.Contains(t, c.stdout.String(), "Examples:\n", command)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		c := begin(t, "completion", shell)
		assert.Equal(t, 0, c.end(t), shell)
		assert.Contains(t, c.stdout.String(), "evalfleet", shell)
	}
}

func TestAShellIsOfferedNames(t *testing.T) {
	t.Parallel()
	flags := serve(t, &server{eval: at(running, 0), samples: []*agentv1.EvalSample{{Id: "a", Epoch: 1}, {Id: "a", Epoch: 2}, {Id: "b", Epoch: 1}}})
	for line, want := range map[string]string{
		"eval show ":       "e1\tsums, running\n:4\n",
		"eval show e":      "e1\tsums, running\n:4\n",
		"eval show x":      ":4\n",
		"eval show e1 ":    ":4\n",
		"eval cancel e0 ":  "e1\tsums, running\n:4\n",
		"logs ":            "e1\tsums, running\nr-on\tmockllm/model, running\nr-over\tmockllm/model, succeeded\n:4\n",
		"run show ":        "r-on\tmockllm/model, running\nr-over\tmockllm/model, succeeded\n:4\n",
		"run watch r":      "r-on\tmockllm/model, running\n:4\n",
		"run cancel r-on ": "r-on\tmockllm/model, running\n:4\n",
		"run list --eval ": "e1\tsums, running\n:4\n",

		"sandbox cp ":                     "sb-1:\tlocal, ready\n:2\n",
		"sandbox cp ./d":                  ":0\n",
		"sandbox cp sb-1:":                "sb-1:data.csv\nsb-1:docs/\n:6\n",
		"sandbox cp sb-1:da":              "sb-1:data.csv\n:6\n",
		"sandbox cp sb-1:/work/do":        "sb-1:/work/docs/\n:6\n",
		"sandbox cp sb-1:/nosuch/":        ":6\n",
		"sandbox cp sb-1:data.csv ":       ":0\n",
		"sandbox cp data.csv ":            "sb-1:\tlocal, ready\n:6\n",
		"sandbox cp data.csv sb-1:/work/": "sb-1:/work/data.csv\nsb-1:/work/docs/\n:6\n",
		"sandbox cp a sb-1:b ":            ":4\n",
		"sandbox exec ":                   "sb-1\tlocal, ready\n:4\n",
		"sandbox rm s":                    "sb-1\tlocal, ready\n:4\n",
		"eval run --driver ":              "docker\nlocal\n:4\n",
		"run --sandbox l":                 "local\n:4\n",
		"run --tool ":                     "bash\tRun a command.\n:4\n",
		"run -m openai/":                  "openai/ft-ours\n:4\n",
		"eval run -m m":                   "mockllm/model\n:4\n",
		"logs e1 --sample ":               "a\nb\n:4\n",
		"logs --sample b":                 "b\n:4\n",
	} {
		c := begin(t, append(append([]string{"__complete"}, flags...), strings.Split(line, " ")...)...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Contains(t, c.stdout.String(), want, line)
	}
}

func TestAShellIsOfferedNothingWhereNoServerRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for _, where := range [][]string{{"--data-dir", dir}, {"--server", "127.0.0.1:1", "--token-file", tokenFile(t, "x")}} {
		c := begin(t, append(append([]string{"__complete"}, where...), "eval", "show", "")...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Equal(t, ":4\n", c.stdout.String())
		c = begin(t, append(append([]string{"__complete"}, where...), "run", "-m", "openai/gpt-4o")...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Equal(t, "openai/gpt-4o\nopenai/gpt-4o-mini\n:4\n", c.stdout.String(), "models are known without a server")
		c = begin(t, append(append([]string{"__complete"}, where...), "run", "--tool", "b")...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Equal(t, "bash\n:4\n", c.stdout.String(), "built-in tools are, too")
		c = begin(t, append(append([]string{"__complete"}, where...), "eval", "run", "--driver", "")...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Equal(t, "docker\nlocal\n:4\n", c.stdout.String(), "and drivers")
	}
	assert.NoDirExists(t, dir)
}

func TestShowTellsUsageByModel(t *testing.T) {
	t.Parallel()
	e := at(succeeded, 4)
	e.Usage = map[string]*modelv1.ModelUsage{"a/b": {InputTokens: 1000, OutputTokens: 200, TotalTokens: 1200}, "c/d": {InputTokens: 1, TotalTokens: 1}}
	c := begin(t, append(serve(t, &server{eval: e}), "eval", "show", "e1")...)
	require.Equal(t, 0, c.end(t))
	assert.Contains(t, c.stdout.String(), "MODEL  TOKENS IN  OUT  ALL\na/b    1.0k       200  1.2k\nc/d    1          0    1\n")
}
