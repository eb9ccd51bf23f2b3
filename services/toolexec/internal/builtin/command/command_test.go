package command

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool/tooltest"
)

// run runs a command that ends with the given result.
func run(t *testing.T, result *sandboxv1.ExecResult) (*tool.Result, error) {
	t.Helper()
	sandbox := &tooltest.Sandbox{Answer: func(*sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error) { return result, nil }}
	return Options{}.Run(t.Context(), tooltest.NewCall("{}", sandbox), []string{"true"}, "")
}

func TestStandardErrorComesFirst(t *testing.T) {
	t.Parallel()
	for want, result := range map[string]*sandboxv1.ExecResult{
		"":             {},
		"out":          {Stdout: []byte("out")},
		"err\n":        {Stderr: []byte("err")},
		"err\nout":     {Stdout: []byte("out"), Stderr: []byte("err")},
		"err\n\nout\n": {Stdout: []byte("out\n"), Stderr: []byte("err\n"), ExitCode: new(int32(3))},
	} {
		got, err := run(t, result)
		require.NoError(t, err)
		assert.Equal(t, tool.Text(want), got)
	}
}

func TestTimeoutKeepsWhatWasPrinted(t *testing.T) {
	t.Parallel()
	_, err := run(t, &sandboxv1.ExecResult{TimedOut: true, Stdout: []byte("hi\n"), StdoutBytes: 10})
	told, ok := tool.Explain("bash", err)
	require.True(t, ok)
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, told.Type)
	assert.Equal(t, "hi\n", told.Output)
	assert.EqualValues(t, 7, told.OmittedBytes)
}

func TestACancelledCommandIsAnError(t *testing.T) {
	t.Parallel()
	_, err := run(t, &sandboxv1.ExecResult{Cancelled: true, Stderr: []byte("bye")})
	told, ok := tool.Explain("bash", err)
	require.True(t, ok)
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, told.Type)
	assert.Equal(t, "bye\n", told.Output)
}

func TestCutStreamsAreCounted(t *testing.T) {
	t.Parallel()
	got, err := run(t, &sandboxv1.ExecResult{
		Stdout: []byte("日\xe6\x97\xa5z"), StdoutBytes: 107, StdoutCutAt: new(int64(4)), // cut inside the second character's first byte
		Stderr: []byte("ab"), StderrBytes: 12, StderrCutAt: new(int64(1)),
	})
	require.NoError(t, err)
	assert.EqualValues(t, 110, got.OmittedBytes)
	assert.Equal(t, "ab\n日\ufffd\ufffd\ufffdz", got.Content.GetText(), "halves that were no neighbours make no character")
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[string]string{
		"plain é 日 🌍":          "plain é 日 🌍",
		"a\xff\xfeb\n":         "a\ufffd\ufffdb\n",
		"a\xc3":                "a\ufffd",
		"\xe6\x97":             "\ufffd",
		"\xe6\x97x":            "\ufffdx",
		"\xe6\x97\xff":         "\ufffd\ufffd",
		"\xf0\x9f\x8c":         "\ufffd",
		"\xf0\x9f\x8c\xf0":     "\ufffd\ufffd",
		"\xe0\x80\x80":         "\ufffd\ufffd\ufffd",
		"\xed\xa0\x80":         "\ufffd\ufffd\ufffd",
		"\x80\x80":             "\ufffd\ufffd",
		"\ufffd":               "\ufffd",
		"\xf1\x80\x80\xe1\x80": "\ufffd\ufffd",
	} {
		assert.Equal(t, want, decode([]byte(bytes)), "%q", bytes)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("a\xff\xe6\x97🌍"))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		got := decode(bytes)
		require.True(t, utf8.ValidString(got))
		// Every run of valid characters survives.
		require.Equal(t, strings.ReplaceAll(strings.ToValidUTF8(string(bytes), ""), "\ufffd", ""), strings.ReplaceAll(got, "\ufffd", ""))
	})
}

func TestAViewIsFencedByMoreThanItHolds(t *testing.T) {
	t.Parallel()
	for code, fence := range map[string]string{"a": "```", "`a``b`": "```", "a ``` b": "````", "`````\na\n```": "``````"} {
		arguments, err := json.Marshal(map[string]string{"code": code})
		require.NoError(t, err)
		assert.Equal(t, fence+"python\n"+code+"\n"+fence+"\n", View("Python", "python", "code")(arguments).GetContent())
	}
	many := strings.Repeat("`", 1<<21)
	begun := time.Now()
	assert.Len(t, View("Python", "", "code")(json.RawMessage(`{"code":"`+many+`"}`)).GetContent(), 3*len(many)+len("`\n\n`\n"))
	assert.Less(t, time.Since(begun), waittest.Bound)
}
