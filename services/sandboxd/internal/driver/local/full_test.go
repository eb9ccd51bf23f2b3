package local

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// TestAFullDiskIsWaitedFor creates boxes on a real disk that is full, first of files, then of bytes, and has room for
// more and more of a box.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, disk := range map[string]struct {
		options string
		ballast func(t *testing.T, path string) error
	}{
		"no files": {"size=64m,nr_inodes=64", func(_ *testing.T, path string) error {
			return os.WriteFile(path, nil, 0o600)
		}},
		"no bytes": {"size=48m", func(t *testing.T, path string) error {
			f, err := os.Create(path)
			require.NoError(t, err)
			defer f.Close()
			return unix.Fallocate(int(f.Fd()), 0, 0, 4096)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, disk.options); err != nil {
				t.Skip("SKIP: mounting a small disk is not allowed here: ", err)
			}
			t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
			d, err := New(Config{Dir: filepath.Join(dir, "boxes"), GuestPath: os.Getenv("EVALFLEET_TEST_GUEST"), SearchPath: os.Getenv("PATH")})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, d.Close()) })
			ballast := filepath.Join(dir, "ballast")
			require.NoError(t, os.Mkdir(ballast, 0o700))
			var files []string
			for {
				path := filepath.Join(ballast, strconv.Itoa(len(files)))
				err := disk.ballast(t, path)
				if err != nil {
					require.ErrorIs(t, err, unix.ENOSPC)
					os.Remove(path)
					break
				}
				files = append(files, path)
			}
			waited := 0
			for ; ; waited++ {
				spec := mayBeUnisolated("full-" + strings.ToLower(rand.Text()))
				_, err := d.Create(t.Context(), spec)
				if err == nil {
					require.NoError(t, d.Destroy(t.Context(), spec.ID))
					break
				}
				require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "with room for %d: %v", waited, err)
				require.Positive(t, rpcerr.RetryAfter(err))
				require.NotEmpty(t, files, "there is room")
				require.NoError(t, os.Remove(files[len(files)-1]))
				files = files[:len(files)-1]
			}
			assert.Positive(t, waited)
		})
	}
}
