package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// Five processes with a data directory each and one token between them do what one process does.
func TestFiveProcesses(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped)
	token := filepath.Join(filepath.Dir(h.dir), "token")
	var gateway *home
	for _, target := range []string{"modelgw", "sandboxd", "toolexec", "agentorch", "gateway"} {
		gateway = h.beside(target, "--target", target, "--token-file", token)
		h.env = append(h.env, "EVALFLEET_"+strings.ToUpper(target)+"_ADDRESS="+gateway.server.address)
	}
	secret, err := os.ReadFile(token)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(gateway.dir, "token"), secret, 0o600)) // Where connect looks for it.
	c := gateway.connect()

	spec := counted(t)
	spec.GetDataset().GetInline().Samples = spec.GetDataset().GetInline().GetSamples()[:1]
	spec.Epochs = nil
	eval := c.await(t, c.create(t, spec))
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
	assert.InDelta(t, 1, metric(t, eval, "exec", "accuracy"), 0)
	eventually(t, func() bool {
		boxes, err := c.sandboxes.ListSandboxes(within(t), &sandboxv1.ListSandboxesRequest{Parent: project})
		require.NoError(t, err)
		return len(boxes.GetSandboxes()) == 0
	}, "no sandbox is left")
}

// beside starts a server in another data directory beside this one. It is stopped when the test ends, those that were started last first.
func (h *home) beside(name string, args ...string) *home {
	h.t.Helper()
	b := &home{t: h.t, build: h.build, dir: filepath.Join(filepath.Dir(h.dir), name), logs: h.logs, env: h.env}
	p := b.launch(args...)
	h.t.Cleanup(func() {
		assert.NoError(h.t, p.cmd.Process.Signal(syscall.SIGTERM))
		p.await(h.t)
		assert.NoError(h.t, p.err, "%s is asked to stop and exits with 0", name)
		if h.t.Failed() {
			b.showLogs()
		}
	})
	require.True(h.t, b.awaitAddress(p), "%s ended: %v", name, p.err)
	return b
}
