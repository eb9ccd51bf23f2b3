package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// TestACommandRunsOnceThoughTheServiceDies: the service that began a call dies while the command runs; its successor
// gets the result of the same command.
func TestACommandRunsOnceThoughTheServiceDies(t *testing.T) {
	t.Parallel()
	b := startSandboxd(t).open(t)
	ledger := &memory.Ledger{}
	request := &toolv1.ExecuteToolsRequest{
		Parent:    parent,
		RequestId: "run/7",
		Tools:     []*toolv1.ToolRef{{Name: "bash"}},
		Calls:     []*toolv1.ToolCall{{Id: "c1", Function: "bash", ArgumentsJson: `{"command":"echo ran >> count; until [ -e go ]; do sleep 0.05; done; cat count"}`}},
		Sandboxes: map[string]string{"default": b.name},
	}

	first := serviceOver(t, ledger, "first", b.client, builtins()...)
	ended := make(chan error, 1)
	go func() {
		_, err := first.execute(t.Context(), request)
		ended <- err
	}()
	require.Eventually(t, func() bool { _, exists := b.read(t, "count"); return exists }, waittest.Bound, 20*time.Millisecond)
	first.kill()
	require.Error(t, waittest.For(t, ended, "the end of the call whose service died"))

	second := serviceOver(t, ledger, "second", b.client, builtins()...)
	b.write(t, "go", nil)
	out, err := second.execute(t.Context(), request)
	require.NoError(t, err)
	result := out.results()[0]
	assert.Equal(t, "ran\n", result.GetContent().GetText())
	assert.True(t, result.GetTiming().GetReissued())
	require.Len(t, result.GetSandboxActions(), 1)
	command := result.GetSandboxActions()[0].GetTiming()
	assert.Equal(t, command.GetStartTime().AsTime(), result.GetTiming().GetStartTime().AsTime(), "the call began with its command")
	assert.GreaterOrEqual(t, result.GetTiming().GetWorking().AsDuration(), command.GetWorking().AsDuration(), "what the command did before counts")
	assert.True(t, strings.HasPrefix(result.GetSandboxActions()[0].GetCommand(), "bash --login -c "))
}

// TestACancelledCommandIsKilled: the commands of a cancelled call end with it.
func TestACancelledCommandIsKilled(t *testing.T) {
	t.Parallel()
	b := startSandboxd(t).open(t)
	s := serviceOver(t, &memory.Ledger{}, "test", b.client, builtins()...)
	request := &toolv1.ExecuteToolsRequest{
		Parent:    parent,
		RequestId: "run/7",
		Tools:     []*toolv1.ToolRef{{Name: "bash"}},
		Calls:     []*toolv1.ToolCall{{Id: "c1", Function: "bash", ArgumentsJson: `{"command":"touch began; while :; do date +%s%N > alive; sleep 0.02; done"}`}},
		Sandboxes: map[string]string{"default": b.name},
	}
	results := make(chan *toolv1.ToolResult, 1)
	go func() {
		out, err := s.execute(t.Context(), request)
		assert.NoError(t, err)
		results <- out.results()[0]
	}()
	require.Eventually(t, func() bool { _, exists := b.read(t, "alive"); return exists }, waittest.Bound, 20*time.Millisecond)
	_, err := s.CancelTools(t.Context(), &toolv1.CancelToolsRequest{Parent: parent, RequestId: "run/7", Calls: []*toolv1.CallRef{{CallId: "c1"}}})
	require.NoError(t, err)
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, waittest.For(t, results, "the result of the call that was cancelled").GetError().GetType())
	require.Eventually(t, func() bool {
		return b.shell(t, "before=$(cat alive); sleep 0.2; [ \"$before\" = \"$(cat alive)\" ] && echo dead") == "dead\n"
	}, waittest.Bound, 20*time.Millisecond)
}
