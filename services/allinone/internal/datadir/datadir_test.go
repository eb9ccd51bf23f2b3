package datadir_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/version"
	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
)

func open(t *testing.T) datadir.Dir {
	t.Helper()
	d, err := datadir.Open(filepath.Join(t.TempDir(), "a", "b"))
	require.NoError(t, err)
	return d
}

func TestTheSecondFindsTheFirst(t *testing.T) {
	t.Parallel()
	d := open(t)
	lock, _, err := d.Claim(t.Context())
	require.NoError(t, err)
	require.NotNil(t, lock)
	require.NoError(t, lock.Announce("127.0.0.1:1"))

	second, holder, err := d.Claim(t.Context())
	require.NoError(t, err)
	assert.Nil(t, second)
	assert.Equal(t, datadir.Holder{Address: "127.0.0.1:1", PID: os.Getpid(), Version: version.String()}, holder)
	b, err := os.ReadFile(filepath.Join(d.Path(), "lock"))
	require.NoError(t, err)
	assert.JSONEq(t, string(must(json.Marshal(holder))), string(b))

	require.NoError(t, lock.Release())
	third, _, err := d.Claim(t.Context())
	require.NoError(t, err)
	require.NotNil(t, third, "a folder that was let go can be held again")
	require.NoError(t, third.Release())
}

func TestAHolderWithoutAnAddressIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := open(t)
	synctest.Test(t, func(t *testing.T) {
		lock, _, err := d.Claim(t.Context())
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Second)
			assert.NoError(t, lock.Announce("127.0.0.1:1"))
		}()
		start := time.Now()
		_, holder, err := d.Claim(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "127.0.0.1:1", holder.Address)
		assert.InDelta(t, time.Second, time.Since(start), float64(100*time.Millisecond))
		require.NoError(t, lock.Release())
	})
}

// A process that is killed amid a fork leaves its lock to the child for a moment.
func TestADeadHolderIsNobody(t *testing.T) {
	t.Parallel()
	d := open(t)
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	synctest.Test(t, func(t *testing.T) {
		lock, _, err := d.Claim(t.Context())
		require.NoError(t, err)
		left := must(json.Marshal(datadir.Holder{Address: "127.0.0.1:1", PID: dead.ProcessState.Pid()}))
		require.NoError(t, os.WriteFile(filepath.Join(d.Path(), "lock"), left, 0o600))
		go func() {
			time.Sleep(time.Second)
			assert.NoError(t, lock.Release())
		}()
		next, _, err := d.Claim(t.Context())
		require.NoError(t, err)
		require.NotNil(t, next)
		require.NoError(t, next.Release())
	})
}

func TestTheWaitHasAnEnd(t *testing.T) {
	t.Parallel()
	d := open(t)
	lock, _, err := d.Claim(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = d.Claim(ctx)
	assert.ErrorContains(t, err, "data directory "+d.Path()+" is held by process ")
	assert.ErrorContains(t, err, "which takes no clients; try again, or name another with --data-dir")
	require.NoError(t, lock.Release())
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

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
