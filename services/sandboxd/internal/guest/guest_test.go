package guest

import (
	"os/user"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// System accounts have system folders as homes, which no check may change.
func TestAHomeThatIsASystemFolderIsNoFolderOfChecks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"daemon", "bin", "sys", "man"} {
		account, err := user.Lookup(name)
		if err != nil || !systemFolder.MatchString(account.HomeDir) {
			continue
		}
		dir := t.TempDir()
		folders := checkFolders(&box.Guest{User: name, ChecksDir: dir, Workdir: t.TempDir()})
		assert.Contains(t, folders, dir)
		assert.NotContains(t, folders, account.HomeDir)
	}
	for folder, system := range map[string]bool{
		"/usr/sbin": true, "/bin": true, "/dev": true, "/etc/x": true, "/lib64": true, "/proc/1": true,
		"/": false, "/home/daemon": false, "/root": false, "/usrs": false, "/binary": false, "/var/lib/postgresql": false, "/srv/etc": false,
	} {
		require.Equal(t, system, systemFolder.MatchString(folder), folder)
	}
}
