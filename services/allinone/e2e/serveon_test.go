package e2e_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// delayed is a task whose second sample takes so many seconds.
func (h *home) delayed(name, seconds string) string {
	return h.write(name+".yaml", strings.NewReplacer("task: slow", "task: "+name, "delay_s: 3", "delay_s: "+seconds).Replace(slowTask))
}

// two starts a command that serves, and another that is its client, and waits until the evaluations of both are made.
func (h *home) two(first, second string) (server, guest *running, c *client) {
	h.t.Helper()
	server = h.begin("eval", "run", first)
	c = h.attach(server)
	made := func(n int) func() bool {
		return func() bool {
			list, err := c.evals.ListEvals(within(h.t), &agentv1.ListEvalsRequest{Parent: project})
			require.NoError(h.t, err)
			return len(list.GetEvals()) == n
		}
	}
	eventually(h.t, made(1), "the first evaluation is made")
	guest = h.begin("eval", "run", second)
	eventually(h.t, made(2), "the second evaluation is made")
	return server, guest, c
}

// One that is interrupted cancels its own evaluation alone.
func TestAnInterruptLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	first, second, c := h.two(h.delayed("first", "600"), h.delayed("second", "3"))
	c.leave()
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGINT))
	theirs := second.end()
	assert.Zero(t, theirs.code, theirs.err)
	own := first.end()
	assert.Equal(t, 130, own.code, own.err)
	assert.Contains(t, own.out, "evalfleet eval resume ")
}
