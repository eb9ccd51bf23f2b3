package e2e_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each service of five processes is killed in turn, amid an evaluation, and started again at its address. Nothing tells that anything happened.
func TestKillEachServiceOfFive(t *testing.T) {
	want := undisturbed(t)
	t.Parallel()
	h, callLog := countedHome(t, &shipped)
	token := filepath.Join(filepath.Dir(h.dir), "token")
	services := map[string]*home{}
	for _, target := range []string{"modelgw", "sandboxd", "toolexec", "agentorch", "gateway"} {
		s := &home{t: t, build: h.build, dir: filepath.Join(filepath.Dir(h.dir), target), logs: h.logs, env: h.env, tokenFile: token}
		services[target] = s
		require.True(t, s.awaitAddress(s.launch("--target", target, "--token-file", token)), "%s ended: %v", target, s.server.err)
		t.Cleanup(func() {
			if target == "sandboxd" {
				s.removeSandboxes()
			}
			assert.NoError(t, s.server.cmd.Process.Signal(syscall.SIGTERM))
			s.server.await(t)
			assert.NoError(t, s.server.err, "%s is asked to stop and exits with 0", target)
		})
		h.env = append(h.env, "EVALFLEET_"+strings.ToUpper(target)+"_ADDRESS="+s.server.address)
	}
	c := services["gateway"].connect()
	spec := counted(t)
	spec.MaxSamples = new(int32(1)) // So that it lasts.
	name := c.create(t, spec)
	for i, victim := range []string{"modelgw", "sandboxd", "toolexec", "agentorch"} {
		require.False(t, c.ended(t, name, i+1), "the evaluation ended before %s was killed", victim)
		s := services[victim]
		address := s.server.address
		s.kill()
		require.True(t, s.awaitAddress(s.launch("--target", victim, "--token-file", token, "--listen", address)), "%s ended: %v", victim, s.server.err)
	}
	eval := c.await(t, name)
	assert.Equal(t, want, verdictsOf(t, c, eval))
	checkCounted(t, c, eval, callLog)
}
