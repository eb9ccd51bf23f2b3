package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each of five processes is killed in turn, amid an evaluation, and started again at its address. Nothing tells that anything happened.
func TestKillEachServiceOfFive(t *testing.T) {
	want := undisturbed(t)
	t.Parallel()
	h, callLog := countedHome(t, &shipped, five)
	c := h.serve()
	spec := counted(t)
	spec.MaxSamples = new(int32(1)) // So that it lasts.
	name := c.create(t, spec)
	for i, victim := range five.services() {
		require.False(t, c.ended(t, name, i+1), "the evaluation ended before %s was killed", victim)
		was := h.processes[victim].cmd.Process.Pid
		h.kill(victim)
		c = h.serve()
		assert.NotEqual(t, was, h.processes[victim].cmd.Process.Pid)
	}
	eval := c.await(t, name)
	assert.Equal(t, want, verdictsOf(t, c, eval))
	checkCounted(t, c, eval, callLog)
}

// The single binary can be each of the five.
func TestServeTargets(t *testing.T) {
	want := undisturbed(t)
	t.Parallel()
	h, callLog := countedHome(t, &shipped, targets)
	c := h.serve()
	eval := c.await(t, c.create(t, counted(t)))
	assert.Equal(t, want, verdictsOf(t, c, eval))
	checkCounted(t, c, eval, callLog)
	h.stop()
}
