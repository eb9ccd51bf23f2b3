package mockllm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mockllm"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// script is the script of the suite's answers. Arguments go in as they are written.
func script(answers []providertest.Answer) string {
	var outputs []string
	for _, a := range answers {
		calls := "[]"
		if a.Function != "" {
			arguments := a.Arguments
			if !json.Valid([]byte(arguments)) {
				arguments = quoted(arguments)
			}
			calls = fmt.Sprintf(`[{"function": %s, "arguments": %s}]`, quoted(a.Function), arguments)
		}
		failure := "null"
		if a.Status != 0 {
			failure = fmt.Sprintf(`{"status": %d, "retry_after_s": %v}`, a.Status, a.RetryAfter.Seconds())
		}
		outputs = append(outputs, fmt.Sprintf(`{"text": %s, "delay_s": %v, "tool_calls": %s, "error": %s}`,
			quoted(a.Text), a.Delay.Seconds(), calls, failure))
	}
	return `{"outputs": [` + strings.Join(outputs, ",") + `]}`
}

func quoted(text string) string {
	document, _ := json.Marshal(text)
	return string(document)
}

func open(t testing.TB, c mockllm.Config, blobs mockllm.Blobs, args string) provider.Provider {
	t.Helper()
	kind, closeLog, err := mockllm.Kind(c, blobs)
	require.NoError(t, err)
	t.Cleanup(func() { _ = closeLog() })
	p, err := kind.Open(provider.Spec{Project: "p", Model: "model", Account: provider.DefaultAccount, Args: args})
	require.NoError(t, err)
	return p
}

func TestSuite(t *testing.T) {
	t.Parallel()
	newProvider := func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		return open(t, mockllm.Config{}, nil, script(answers))
	}
	providertest.Run(t, providertest.Harness{NoServer: true, New: newProvider})
}

// Usage that a script does not set is counted by characters.
func TestGoldenUsage(t *testing.T) {
	t.Parallel()
	cases := slices.DeleteFunc(goldentest.Load(t, "core/token-count.jsonl"), func(c goldentest.Case) bool { return c.Op() != "mock_usage" })
	goldentest.Run(t, "usage", cases, func(t *goldentest.T, c goldentest.Case) {
		var form struct {
			Input struct {
				Messages, Tools json.RawMessage
				Output          string
			}
		}
		require.NoError(t, c.Decode(&form))
		messages, err := chat.ParseMessages(form.Input.Messages)
		require.NoError(t, err)
		tools, err := chattest.Tools(form.Input.Tools)
		require.NoError(t, err)
		p := open(t, mockllm.Config{}, nil, script([]providertest.Answer{{Text: form.Input.Output}}))
		response, err := p.Generate(t.Context(), &provider.Request{Messages: messages, Tools: tools, Config: &modelv1.GenerateConfig{}, Attempt: 1, Origin: provider.Origin{Project: "p"}})
		require.NoError(t, err)
		t.Equal(c.At("expect"), chat.UsageJSON(response.Output.GetUsage()))
	})
}

// ask makes one call and returns its text.
func ask(t testing.TB, p provider.Provider, sample string, epoch, turn int32, question string) (string, error) {
	t.Helper()
	response, err := p.Generate(t.Context(), &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.System("be brief"), chat.User(question)}, Config: &modelv1.GenerateConfig{}, Attempt: 1,
		Origin: provider.Origin{Project: "p", Attribution: &effectv1.Attribution{Sample: sample, Epoch: epoch, Turn: turn}},
	})
	if err != nil {
		return "", err
	}
	return chat.Completion(response.Output), nil
}

func TestTheFirstEntryThatFitsAnswers(t *testing.T) {
	t.Parallel()
	const document = `{
		"entries": [
			{"sample": "a", "epoch": 2, "turn": 1, "output": "a in epoch 2"},
			{"contains": "urgent", "output": "at once"},
			{"sample": "a", "outputs": ["a first", "a second"]},
			{"sample": 7, "output": "seven"},
			{"regexp": "^what is (\\d+)", "in": "last_user", "max_turn": 2, "output": "a number"},
			{"contains": "be brief", "in": "conversation", "min_turn": 5, "output": "briefly"}
		],
		"default": {"text": "no idea"}
	}`
	yamlDocument := "entries:\n" +
		"- {sample: a, epoch: 2, turn: 1, output: a in epoch 2}\n" +
		"- {contains: urgent, output: at once}\n" +
		"- sample: a\n  outputs: [a first, a second]\n" +
		"- {sample: 7, output: seven}\n" +
		"- {regexp: '^what is (\\d+)', in: last_user, max_turn: 2, output: a number}\n" +
		"- {contains: be brief, in: conversation, min_turn: 5, output: briefly}\n" +
		"default: {text: no idea}\n"
	for name, text := range map[string]string{"json": document, "yaml": yamlDocument} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		p := open(t, mockllm.Config{Scripts: map[string]string{"demo": path}}, nil, `{"script": "demo"}`)
		for _, c := range []struct {
			sample      string
			epoch, turn int32
			question    string
			want        string
		}{
			{"a", 2, 1, "x", "a in epoch 2"},
			{"a", 1, 1, "urgent!", "at once"},
			{"a", 1, 1, "x", "a first"},
			{"a", 1, 2, "x", "a second"},
			{"a", 1, 3, "x", "no idea"},
			{"7", 1, 4, "x", "seven"},
			{"b", 1, 1, "what is 12?", "a number"},
			{"b", 1, 3, "what is 12?", "no idea"},
			{"b", 1, 6, "what is 12?", "briefly"},
		} {
			got, err := ask(t, p, c.sample, c.epoch, c.turn, c.question)
			require.NoError(t, err)
			assert.Equal(t, c.want, got, "%s: %+v", name, c)
		}
	}
}

func TestJSONLinesAreAScriptOfEntries(t *testing.T) {
	t.Parallel()
	lines := `{"sample": "a", "turn": 1, "output": "one"}
{"sample": "a", "turn": 2, "output": {"text": "two"}}
"in order"`
	p := open(t, mockllm.Config{}, func(_ context.Context, project, hash string) ([]byte, error) {
		assert.Equal(t, "p", project)
		assert.Equal(t, "abc", hash)
		return []byte(lines), nil
	}, `{"script": "blob:sha256:abc"}`)
	for turn, want := range map[int32]string{1: "one", 2: "two"} {
		got, err := ask(t, p, "a", 1, turn, "x")
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	got, err := ask(t, p, "b", 1, 1, "x")
	require.NoError(t, err)
	assert.Equal(t, "in order", got)
	_, err = ask(t, p, "b", 1, 1, "x")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SCRIPT_EXHAUSTED), err)
}

func TestArgumentsKeepTheirOrderInYAMLToo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "script.yaml")
	require.NoError(t, os.WriteFile(path, []byte("outputs:\n- tool_calls:\n  - {function: f, arguments: {b: 1, a: 2020-01-01, c: yes, d: 1.5, e: null}}\n"), 0o600))
	p := open(t, mockllm.Config{Scripts: map[string]string{"s": path}}, nil, `{"script": "s"}`)
	response, err := p.Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}, Attempt: 1})
	require.NoError(t, err)
	assert.Equal(t, `{"b":1,"a":"2020-01-01","c":"yes","d":1.5,"e":null}`, chat.FirstMessage(response.Output).GetToolCalls()[0].GetArgumentsJson())
}

// A configured path that leads nowhere is a fault of the configuration: the call is refused, not tried again for ever.
func TestAConfiguredScriptThatCannotBeReachedIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	hidden := filepath.Join(dir, "hidden")
	require.NoError(t, os.WriteFile(hidden, nil, 0o000))
	paths := []string{filepath.Join(dir, "file", "script.yaml"), filepath.Join(dir, "loop")}
	if _, err := os.ReadFile(hidden); err != nil { // Root may read it.
		paths = append(paths, hidden)
	}
	for _, path := range paths {
		p := open(t, mockllm.Config{Scripts: map[string]string{"s": path}}, nil, `{"script": "s"}`)
		_, err := p.Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}, Attempt: 1})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", path, err)
	}
}

func TestAWholeOutputIsGivenAsItIs(t *testing.T) {
	t.Parallel()
	p := open(t, mockllm.Config{}, nil, `{"outputs": [{"model": "x", "choices": [
		{"message": {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "why"}, {"type": "text", "text": "a"}]}, "stop_reason": "max_tokens"},
		{"message": {"role": "assistant", "content": "b"}, "stop_reason": "content_filter"}],
		"usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}]}`)
	response, err := p.Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}, Attempt: 1})
	require.NoError(t, err)
	output := response.Output
	assert.Equal(t, "a", output.GetCompletion())
	assert.Len(t, output.GetChoices(), 2)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_MAX_TOKENS, chat.StopReason(output))
	assert.Equal(t, int64(3), output.GetUsage().GetTotalTokens())
	assert.NotEmpty(t, chat.FirstMessage(output).GetId())
}

func TestAnErrorMayPassAfterSomeAttempts(t *testing.T) {
	t.Parallel()
	p := open(t, mockllm.Config{}, nil, `{"outputs": [{"output": {"text": "x", "error": {"status": 503, "times": 2}}}]}`)
	for attempt := 1; attempt <= 3; attempt++ {
		_, err := p.Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}, Attempt: attempt})
		assert.Equal(t, attempt <= 2, err != nil, attempt)
	}
}

func TestFaultsOfScriptsAreNamed(t *testing.T) {
	t.Parallel()
	kind, closeLog, err := mockllm.Kind(mockllm.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = closeLog() })
	for args, says := range map[string]string{
		`{"outputs": [{"txt": "x"}]}`:                                     "txt",
		`{"outputs": ["ok", {"text": "x", "completion": "y"}]}`:           "output 2",
		`{"outputs": [{"sample": "a", "output": "x", "outputs": ["y"]}]}`: "both output and outputs",
		`{"outputs": [{"regexp": "(", "output": "x"}]}`:                   "entry 1",
		`{"outputs": [{"in": "nowhere", "output": "x"}]}`:                 "last_user",
		`{"outputs": [{"tool_calls": [{"arguments": {}}]}]}`:              "no function",
		`{"outputs": [{"choices": [{"message": {"role": "user"}}]}]}`:     "content",
		`{"outputs": [7]}`:                   "text or an object",
		`{"outputs": "first"}`:               "arguments of mockllm: outputs must be a list, not a text",
		`{"script": 5}`:                      "arguments of mockllm: script must be a text, not a number",
		`[1]`:                                "arguments of mockllm: the whole must be a map, not a list",
		`{"outputs": [{"text": ["x"]}]}`:     "output 1: text must be a text, not a list",
		`{"outputs": [{"delay_s": "long"}]}`: "output 1: delay_s must be a number, not a text",
		`{"outputs": [{"sample": "a", "turn": 1.5, "output": "x"}]}`: "entry 1: turn must be an integer, not 1.5",
		`{"bogus": 1}`: `arguments of mockllm: unknown field "bogus"; known: outputs, script`,
		`{"outputs": [{"sample": "a", "delay": 2, "output": "x"}]}`: `entry 1: unknown field "delay"; known: sample, epoch, role, turn, min_turn`,
		`{"outputs": [{"text": "x", "delay": 2}]}`:                  `output 1: unknown field "delay"; did you mean delay_s? known: text, completion`,
		`{"outputs": [{"error": {"code": 500}}]}`:                   `unknown field "code"; known: status, message, retry_after_s`,
		`{"outputs": [{"tool_calls": [{"name": "f"}]}]}`:            `unknown field "name"; known: id, function, arguments`,
		`{"output": []}`: "output",
	} {
		_, err := kind.Open(provider.Spec{Model: "model", Account: provider.DefaultAccount, Args: args})
		require.Error(t, err, args)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), args)
		assert.ErrorContains(t, err, says, args)
	}
	p, err := kind.Open(provider.Spec{Model: "model", Account: provider.DefaultAccount, Args: `{"script": "blob:abc"}`})
	require.NoError(t, err)
	_, err = ask(t, p, "a", 1, 1, "x")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET), err)
}

func TestFaultsOfAScriptNameTheFileThatPeopleKnow(t *testing.T) {
	t.Parallel()
	for ref, says := range map[string]string{
		"blob:abc#slow_answers.yaml": `script slow_answers.yaml, entry 1: unknown field "delay"; known: `,
		"blob:abc":                   `script blob:abc, entry 1: unknown field "delay"; known: `,
	} {
		p := open(t, mockllm.Config{}, func(_ context.Context, _, hash string) ([]byte, error) {
			assert.Equal(t, "abc", hash)
			return []byte("entries:\n- {sample: a, output: x, delay: 2s}\n"), nil
		}, `{"script": "`+ref+`"}`)
		_, err := ask(t, p, "a", 1, 1, "x")
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), err)
		assert.ErrorContains(t, err, says)
	}
}

func TestTheCallLogHasALineForEachCall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	p := open(t, mockllm.Config{CallLog: path}, nil, `{"outputs": [{"output": {"text": "x", "error": {"status": 503}}}]}`)
	for turn := range int32(3) {
		_, err := ask(t, p, "s", 1, turn+1, "x")
		require.Error(t, err)
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 3)
	for i, line := range lines {
		assert.JSONEq(t, fmt.Sprintf(
			`{"project":"p","run":"","sample":"s","epoch":1,"turn":%d,"request_id":"","attempt":1,"reissued":false}`, i+1), line)
	}
}

func FuzzScript(f *testing.F) {
	kind, closeLog, err := mockllm.Kind(mockllm.Config{}, nil)
	require.NoError(f, err)
	f.Cleanup(func() { _ = closeLog() })
	f.Add(`{"outputs": ["x", {"sample": 1, "outputs": [{"text": "y"}]}]}`)
	f.Add(`{"outputs": [{"regexp": "a+", "output": {"tool_calls": [{"function": "f", "arguments": "{"}]}}]}`)
	f.Fuzz(func(t *testing.T, args string) {
		p, err := kind.Open(provider.Spec{Model: "model", Account: provider.DefaultAccount, Args: args})
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // no waiting for delays
		_, _ = p.Generate(ctx, &provider.Request{Config: &modelv1.GenerateConfig{}, Attempt: 1})
	})
}

// bombs are scripts that expand to more than a reader can hold.
func bombs() map[string]struct{ text, say string } {
	layers := "a0: &a0 [x]\n"
	for i := 1; i < 10; i++ {
		alias := fmt.Sprintf("*a%d, ", i-1)
		layers += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.Repeat(alias, 10))
	}
	merges := "m0: &m0 {k: v}\n"
	for i := 1; i < 40; i++ {
		merges += fmt.Sprintf("m%d: &m%d {<<: [*m%d, *m%d]}\n", i, i, i-1, i-1)
	}
	return map[string]struct{ text, say string }{
		"a list that holds itself": {"entries: &a [*a]", "line 1: *a: the value contains itself"},
		"lists of lists":           {layers, "unfolds to more than 100000 values"},
		"merges of merges":         {merges, "line"},
		"one text many times":      {"a: &a " + strings.Repeat("x", 1<<20) + "\noutputs: [" + strings.Repeat("*a, ", 3000) + "]", "unfolds to more than 67108864 bytes"},
		"many outputs":             {`{"outputs": [` + strings.Repeat(`"a",`, 100_000) + `"a"]}`, "more than 100000 entries and answers"},
		"many outputs of an entry": {`{"entries": [{"outputs": [` + strings.Repeat(`"a",`, 100_000) + `"a"]}]}`, "more than 100000 entries and answers"},
		"many lines":               {strings.Repeat("\"a\"\n", 100_001), "more than 100000 entries and answers"},
		"many bytes":               {`"` + strings.Repeat("a", 16<<20) + `"`, "more than 16777216"},
	}
}

func TestAScriptThatStandsForTooMuchIsRefused(t *testing.T) {
	for name, tt := range bombs() {
		t.Run(name, func(t *testing.T) {
			blobs := func(context.Context, string, string) ([]byte, error) { return []byte(tt.text), nil }
			p := open(t, mockllm.Config{}, blobs, `{"script": "blob:b#s.yaml"}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := ask(t, p, "1", 1, 1, "?")
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, rpcerr.Reason(err))
			assert.ErrorContains(t, err, "s.yaml")
			assert.ErrorContains(t, err, tt.say)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(512<<20), "bytes allocated")
		})
	}
}

// A script that is slow to read delays neither callers that do not need it nor callers that give up.
func TestALoadOfAScriptHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	blobs := func(_ context.Context, _, hash string) ([]byte, error) {
		if hash == "slow" {
			close(arrived) // a second load would panic
			waittest.Hold(t, release)
		}
		return []byte("default: " + hash), nil
	}
	kind, closeLog, err := mockllm.Kind(mockllm.Config{}, blobs)
	require.NoError(t, err)
	defer func() { require.NoError(t, closeLog()) }()
	load := func(ctx context.Context, script string) error {
		return kind.Check(ctx, provider.Spec{Project: "p", Model: "model", Account: provider.DefaultAccount, Args: `{"script": "blob:` + script + `"}`})
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- load(ctx, "slow") }()
	waittest.For(t, arrived, "the load of the slow script")
	waited := make(chan error, 1)
	go func() { waited <- load(t.Context(), "slow") }()
	require.NoError(t, load(t.Context(), "quick"))
	cancel()
	require.ErrorIs(t, waittest.For(t, gaveUp, "the caller that gave up"), context.Canceled)
	close(release)
	require.NoError(t, waittest.For(t, waited, "the caller that waited"))
}

// Entries and a conversation may both be large.
func TestTheChoiceOfAnAnswerEndsWithItsCall(t *testing.T) {
	t.Parallel()
	p := open(t, mockllm.Config{}, nil, `{"outputs": [{"contains": "a", "in": "conversation", "output": "x"}, {"contains": "b", "in": "conversation", "output": "y"}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Generate(ctx, &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("b")}, Config: &modelv1.GenerateConfig{}, Attempt: 1})
	require.ErrorIs(t, err, context.Canceled)
	said, err := ask(t, p, "1", 1, 1, "b")
	require.NoError(t, err)
	assert.Equal(t, "y", said)
}

// An unavailable store is not a fault of the request, so that a run waits for it.
func TestAScriptThatCannotBeReadForNowIsNoFaultOfTheRequest(t *testing.T) {
	t.Parallel()
	failure := error(nil)
	blobs := func(context.Context, string, string) ([]byte, error) { return []byte("default: well"), failure }
	p := open(t, mockllm.Config{}, blobs, `{"script": "blob:b#s.yaml"}`)
	for _, tt := range []struct {
		err  error
		away bool
		want errorsv1.ErrorReason
	}{
		{rpcerr.StoreUnavailable("io", 0, "away"), true, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE},
		{rpcerr.FromDisk(&fs.PathError{Op: "open", Path: "b", Err: syscall.EACCES}, "the bodies"), true, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE},
		{rpcerr.FromDisk(&fs.PathError{Op: "open", Path: "b", Err: syscall.ENOTDIR}, "the bodies"), true, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE},
		{errors.New("boom"), false, errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED},
		{fmt.Errorf("%w: b", blob.ErrNotFound), false, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST},
	} {
		failure = tt.err
		_, err := ask(t, p, "1", 1, 1, "?")
		assert.Equal(t, tt.away, rpcerr.StoreAway(err), "%v", err)
		assert.Equal(t, tt.want, rpcerr.Reason(err), "%v", err)
		assert.ErrorContains(t, err, "s.yaml")
	}
	failure = nil
	_, err := ask(t, p, "1", 1, 1, "?")
	require.NoError(t, err)
}

// The load of a script runs in a goroutine of its own, where a panic would end the process.
func TestALoadOfAScriptThatPanicsIsAnError(t *testing.T) {
	t.Parallel()
	loads := 0
	blobs := func(context.Context, string, string) ([]byte, error) {
		if loads++; loads <= 2 { // more than are parsed at once would hang if a place were lost
			panic("boom")
		}
		return []byte("default: well"), nil
	}
	p := open(t, mockllm.Config{}, blobs, `{"script": "blob:b#s.yaml"}`)
	for range 2 {
		_, err := ask(t, p, "1", 1, 1, "?")
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_INTERNAL, rpcerr.Reason(err))
		assert.ErrorContains(t, err, "s.yaml: panic: boom")
	}
	said, err := ask(t, p, "1", 1, 1, "?")
	require.NoError(t, err)
	assert.Equal(t, "well", said)
}

func TestAConfiguredScriptIsARegularFile(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	p := open(t, mockllm.Config{Scripts: map[string]string{"s": pipe}}, nil, `{"script": "s"}`)
	_, err := ask(t, p, "1", 1, 1, "?")
	assert.ErrorContains(t, err, "is a pipe")
}
