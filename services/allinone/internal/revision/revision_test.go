package revision

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatAFolderIs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not there")
	}
	folder := t.TempDir()
	assert.Nil(t, Of(t.Context(), folder), "no work tree")

	run := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", folder, "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"}, args...)
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	run("init", "--quiet")
	assert.Nil(t, Of(t.Context(), folder), "nothing is committed")
	run("commit", "--quiet", "--allow-empty", "--message", "first")

	inner := filepath.Join(folder, "tasks")
	require.NoError(t, os.Mkdir(inner, 0o700))
	r := Of(t.Context(), inner)
	require.NotNil(t, r)
	assert.Regexp(t, "^[0-9a-f]{4,40}$", r.GetCommit())
	assert.Empty(t, r.GetOrigin())
	assert.False(t, r.GetDirty())

	require.NoError(t, os.WriteFile(filepath.Join(inner, "task.yaml"), nil, 0o600))
	run("remote", "add", "origin", "https://someone:secret@example.org/tasks.git")
	r = Of(t.Context(), folder)
	assert.True(t, r.GetDirty())
	assert.Equal(t, "https://example.org/tasks.git", r.GetOrigin())
}

func TestOriginsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	for origin, want := range map[string]string{
		"":                                      "",
		"../elsewhere":                          "../elsewhere",
		"git@example.org:a/b.git":               "git@example.org:a/b.git",
		"ssh://git:secret@example.org/b.git":    "ssh://git@example.org/b.git",
		"https://secret@example.org/b.git":      "https://example.org/b.git",
		"https://u:secret@example.org:8443/b":   "https://example.org:8443/b",
		"https://example.org/b.git?key=secret":  "https://example.org/b.git",
		"https://u:secret%zz@example.org/b.git": "https://example.org/b.git",
		"file:///srv/b.git":                     "file:///srv/b.git",
	} {
		assert.Equal(t, want, withoutSecrets(origin), origin)
	}
}
