package local_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/machinetest"
)

// TestSuiteOnCgroupV2 runs the parts of the suite about cgroups and about escapes from a box on a kernel with cgroup
// version 2: as root, and as a user with a delegated part of the tree, as systemd does for a session. What cheats a
// check is the same with each version.
func TestSuiteOnCgroupV2(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for name, script := range map[string]string{
		"as root": `exec /vm/local.test -test.parallel 4 -test.timeout 44m -test.run '^TestSuite$/^(ends|escapes|checks|isolation|limits|life)$' -test.skip '/^checks$/^cheats$'`,
		"as a user with a delegated group": `
			cd /sys/fs/cgroup
			echo '+memory +pids +cpu' > cgroup.subtree_control
			mkdir -p session/shell
			chown -R agent session
			echo $$ > session/shell/cgroup.procs
			echo '+memory +pids +cpu' > session/cgroup.subtree_control
			mkdir -p /home/agent/tmp
			chown -R agent /home/agent
			cd /home/agent
			export TMPDIR=/home/agent/tmp
			exec python3 -c 'import os; os.setgroups([]); os.setgid(1000); os.setuid(1000); os.execv("/vm/local.test", ["local.test", "-test.parallel", "4", "-test.timeout", "44m", "-test.run", "^TestSuite$/^(ends|escapes|limits)$"])'`,
	} {
		t.Run(name, func(t *testing.T) { // one after the other: each uses all processors
			output, code := machinetest.Run(t, machinetest.Machine{
				Files:   map[string]string{"/vm/local.test": self, "/vm/guestd": guestPath},
				Script:  "export " + guestVariable + "=/vm/guestd " + slowVariable + "=1\n" + script,
				Timeout: 45 * time.Minute,
			})
			require.Zero(t, code, output)
			assert.Contains(t, output, "PASS\nmachinetest: exit 0\n")
			assert.NotContains(t, output, "no tests to run")
		})
	}
}
