package datadir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
)

func open(t *testing.T) datadir.Dir {
	t.Helper()
	d, err := datadir.Open(filepath.Join(t.TempDir(), "a", "b"))
	require.NoError(t, err)
	return d
}

func TestOnlyTheOwnerSeesTheFolder(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, path := range []string{d.Path(), d.Blobs(), d.Sandboxes()} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm(), path)
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env  map[string]string
		want string
	}{
		"by the standard":      {map[string]string{"XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/evalfleet"},
		"by home":              {map[string]string{"HOME": "/h"}, "/h/.local/share/evalfleet"},
		"relative is not used": {map[string]string{"XDG_DATA_HOME": "x", "HOME": "/h"}, "/h/.local/share/evalfleet"},
	} {
		got, err := datadir.Default(func(n string) (string, bool) { v, ok := tt.env[n]; return v, ok })
		require.NoError(t, err, name)
		assert.Equal(t, tt.want, got, name)
	}
	_, err := datadir.Default(func(string) (string, bool) { return "", false })
	assert.EqualError(t, err, "no home for data: HOME is not set; name a folder with --data-dir")
}

func TestTheLogIsBounded(t *testing.T) {
	t.Parallel()
	d := open(t)
	size := func() int64 {
		log, err := d.Log()
		require.NoError(t, err)
		defer log.Close()
		_, err = log.WriteString("line\n")
		require.NoError(t, err)
		info, err := log.Stat()
		require.NoError(t, err)
		return info.Size()
	}
	assert.EqualValues(t, 5, size())
	assert.EqualValues(t, 10, size(), "it is appended to")
	require.NoError(t, os.Truncate(filepath.Join(d.Path(), "evalfleet.log"), 17<<20))
	assert.EqualValues(t, 5, size(), "a long one is begun anew")
}
