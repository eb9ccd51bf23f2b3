package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

func TestWhatTheModelIsToldOfAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want toolv1.ToolErrorType
		says string
	}{
		{"the tool's own", tool.Errorf("went %s", "wrong"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, "went wrong"},
		{"wrapped", fmt.Errorf("outer: %w", tool.Parsingf("say path")), toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, "say path"},
		{"one of several", errors.Join(errors.New("other"), fmt.Errorf("in: %w", &fs.PathError{Op: "open", Path: "/x/y", Err: syscall.ENOENT})), toolv1.ToolErrorType_TOOL_ERROR_TYPE_FILE_NOT_FOUND, "/x/y"},
		{"a deadline", context.DeadlineExceeded, toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, "did not finish"},
		{"a NUL", tool.ErrNullByte, toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, "mytool"},
		{"permission, of a file", &fs.PathError{Op: "open", Path: "/f", Err: syscall.EACCES}, toolv1.ToolErrorType_TOOL_ERROR_TYPE_PERMISSION, "Permission denied: /f."},
		{"permission, of no file", syscall.EPERM, toolv1.ToolErrorType_TOOL_ERROR_TYPE_PERMISSION, "operation not permitted."},
		{"a directory", &fs.PathError{Op: "read", Path: "/d", Err: syscall.EISDIR}, toolv1.ToolErrorType_TOOL_ERROR_TYPE_IS_A_DIRECTORY, "Is a directory: /d."},
		{"a lost sandbox", tool.Unavailable("host lost"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE, "host lost"},
		{"an output limit", tool.OverOutputLimit(10<<20, "kept"), toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT, "10 MiB"},
		{"an odd output limit", tool.OverOutputLimit(1025, ""), toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT, "1025 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			told, ok := tool.Explain("mytool", c.err)
			require.True(t, ok)
			assert.Equal(t, c.want, told.Type)
			assert.Contains(t, told.Message, c.says)
		})
	}
}

// The operating system's text about a file without a name is shown unchanged if the file does not exist, as the
// reference does, and ends with a full stop otherwise.
func TestAnErrorOfAFileWithoutAName(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		syscall.ENOENT: "no such file or directory", syscall.EPERM: "operation not permitted.", syscall.EISDIR: "is a directory.",
	} {
		told, ok := tool.Explain("mytool", err)
		require.True(t, ok)
		assert.Equal(t, want, told.Message)
	}
}

func TestWhatTheModelIsNotTold(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errors.New("bug"), context.Canceled, syscall.ENOTDIR, os.ErrClosed} {
		_, ok := tool.Explain("mytool", err)
		assert.False(t, ok, err.Error())
	}
}

func TestReasoningIsNoResult(t *testing.T) {
	t.Parallel()
	text := &contentv1.Content{Part: &contentv1.Content_Text{Text: &contentv1.Text{Text: "a"}}}
	thought := &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: "b"}}}
	parts := []*contentv1.Content{thought, text}
	assert.Equal(t, tool.Parts(text), tool.Parts(parts...))
	assert.Same(t, thought, parts[0], "the caller's list stays as it is")
}

func TestStore(t *testing.T) {
	t.Parallel()
	store := tool.NewStore([]string{"plan", "memory:*"}, map[string]string{"plan": `[1]`, "memory:a": `"x"`, "secret": `1`})
	value, ok := store.Get("plan")
	assert.True(t, ok)
	assert.Equal(t, `[1]`, string(value))
	_, ok = store.Get("secret")
	assert.False(t, ok, "what a tool did not declare it does not see")

	require.NoError(t, store.Set("memory:b", json.RawMessage(`2`)))
	require.NoError(t, store.Set("memory:b", json.RawMessage(`3`)))
	require.NoError(t, store.Delete("memory:a"))
	require.Error(t, store.Set("secret", json.RawMessage(`2`)))
	_, ok = store.Get("memory:a")
	assert.False(t, ok)

	changes := store.Changes()
	require.Len(t, changes, 2)
	assert.Equal(t, "memory:a", changes[0].GetKey())
	assert.Nil(t, changes[0].ValueJson)
	assert.Equal(t, "memory:b", changes[1].GetKey())
	assert.Equal(t, "3", changes[1].GetValueJson())
}
