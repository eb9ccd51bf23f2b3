package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// The number of descriptor numbers to try: far more than a guest has, and about as many, in ways that take longer and
// on a slow machine.
const (
	mostDescriptors = 300
	likely          = 24
)

// up leads from any folder to the root.
const up = "/../../../../../../../../../../../.."

// escapes: no descriptor of the guest or of its launcher leads out of a box.
func escapes(t *testing.T, h Harness) {
	most := mostDescriptors
	if h.Slow {
		most = likely
	}
	leaveOpen(t, 20, most-10)
	d := h.New(t, t.TempDir())
	b := newBox(t, d, func(s *driver.Spec) { s.Workdir = "/tmp/work" }) // of the user, who may replace it by a link
	canary := hostFile(t)
	t.Run("a command has three descriptors", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		const count = "import os\nfor n in range(4096):\n  try: os.fstat(n)\n  except OSError: continue\n  print(n, end=' ')"
		for _, user := range b.users(h) {
			for name, spec := range map[string]*sandboxv1.ExecSpec{
				"alone": {}, "with input": {Stdin: []byte("x")}, "with much input": {Stdin: make([]byte, 1<<20)}, "elsewhere": {Cwd: "/usr"},
			} {
				spec.Argv, spec.User = []string{"python3", "-c", count}, user
				r, err := b.exec(spec)
				require.NoError(t, err, name)
				assert.Equal(t, "0 1 2 ", string(r.GetStdout()), "%s, as %q: %s", name, user, r.GetStderr())
			}
		}
		f, err := b.follow(&guestv1.StreamRequest{Run: &guestv1.RunRequest{Spec: &sandboxv1.ExecSpec{Argv: []string{"python3", "-c", count}}}}, nil)
		require.NoError(t, err)
		assert.Equal(t, "0 1 2 ", string(f.stdout), "followed")
	})
	t.Run("no working directory by way of a descriptor", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.python("import os, sys\nos.mkdir('/tmp/links')\nfor n in range(int(sys.argv[1])): os.symlink('/proc/self/fd/%d' % n + sys.argv[2], '/tmp/links/%d' % n)", strconv.Itoa(likely), up)
		for _, user := range b.users(h) {
			for n := range most {
				b.refusesToStartIn(fmt.Sprintf("/proc/self/fd/%d/..", n), user)
				if n < likely {
					b.refusesToStartIn(fmt.Sprintf("/dev/fd/%d", n), user)
					b.refusesToStartIn(fmt.Sprintf("/tmp/links/%d", n), user)
				}
			}
			for _, cwd := range []string{"/proc/self/root", "/proc/self/cwd", "/proc/thread-self/root", "/proc/1/root", "/proc/1/cwd"} {
				b.refusesToStartIn(cwd, user)
			}
		}
	})
	t.Run("no link of that kind in place of the working directory", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, d, func(s *driver.Spec) { s.Workdir = "/tmp/work" })
		for n := range likely {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", `mv /tmp/work /tmp/away 2>/dev/null; ln -sfn "$0" /tmp/work && cat /tmp/work/etc/hostname`, fmt.Sprintf("/proc/self/fd/%d%s", n, up)}, Cwd: "/"})
			require.NoError(t, err)
			assert.NotZero(t, r.GetExitCode(), "%s", r.GetStdout())
			for _, user := range b.users(h) {
				b.refusesToStartIn("", user)
			}
		}
	})
	t.Run("no file by way of a descriptor", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.python(`
import os, sys
os.mkdir('/tmp/files')
for n in range(int(sys.argv[1])):
    os.symlink('/proc/self/fd/%d' % n + sys.argv[2] + sys.argv[3], '/tmp/files/%d' % n)
    os.symlink('/proc/self/fd/%d' % n + sys.argv[2], '/tmp/files/root-%d' % n)`, strconv.Itoa(most), up, canary)
		folder, name := filepath.Split(canary)
		for n := range most {
			for _, path := range []string{fmt.Sprintf("/proc/self/fd/%d%s%s", n, up, canary), fmt.Sprintf("/tmp/files/root-%d%s", n, canary), fmt.Sprintf("/tmp/files/%d", n)} {
				_, _, err := b.read(&guestv1.ReadFileRequest{Path: path})
				require.Error(t, err, path)
				if n >= likely {
					continue
				}
				for _, p := range []string{path, fmt.Sprintf("/tmp/files/root-%d%s%s.new", n, folder, name)} {
					_, err = b.write(&guestv1.WriteFileRequest{Path: p}, []byte("written from a box"))
					require.Error(t, err, p)
				}
			}
			for _, path := range []string{fmt.Sprintf("/proc/self/fd/%d", n), fmt.Sprintf("/proc/self/fd/%d/..", n), fmt.Sprintf("/tmp/files/root-%d", n)} {
				_, err := b.list(path)
				require.Error(t, err, path)
			}
			if n < likely {
				require.Error(t, b.remove(fmt.Sprintf("/tmp/files/root-%d%s", n, canary)))
				require.Error(t, b.remove(fmt.Sprintf("/tmp/files/root-%d%s", n, folder)))
				require.Error(t, b.remove(fmt.Sprintf("/proc/self/fd/%d%s%s", n, up, canary)))
			}
		}
		content, err := os.ReadFile(canary)
		require.NoError(t, err)
		assert.Equal(t, "of the host", string(content))
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		assert.Len(t, entries, 1)
	})
	t.Run("nothing that /proc tells of the guest", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("ln -s /proc/1/maps /tmp/maps; ln -s /proc/self /tmp/self")
		for _, path := range []string{"/proc/self/maps", "/proc/thread-self/maps", "/proc/1/maps", "/proc/1/task/1/maps", "/proc/2/maps", "/proc/3/environ", "/tmp/maps", "/tmp/self/environ", "/proc/./self/mountinfo"} {
			content, _, err := b.read(&guestv1.ReadFileRequest{Path: path})
			require.Error(t, err, "%s: %s", path, content)
		}
		for _, path := range []string{"/proc/self", "/proc/1/fd", "/proc/self/fd", "/tmp/self", "/proc/self/root"} {
			_, err := b.list(path)
			require.Error(t, err, path)
		}
		content, _, err := b.read(&guestv1.ReadFileRequest{Path: "/proc/cpuinfo"})
		require.NoError(t, err, "what it tells of the machine can be read")
		assert.NotEmpty(t, content)
	})
}

// leaveOpen opens the host's root in this program as a careless parent does, from some numbers on, to be inherited and
// not.
func leaveOpen(t *testing.T, numbers ...int) {
	t.Helper()
	root, err := os.Open("/")
	require.NoError(t, err)
	defer root.Close()
	for _, how := range []int{unix.F_DUPFD, unix.F_DUPFD_CLOEXEC} {
		for _, from := range numbers {
			fd, err := unix.FcntlInt(root.Fd(), how, from)
			require.NoError(t, err)
			t.Cleanup(func() { unix.Close(fd) })
		}
	}
}

// hostFile creates a file of the host that every user there may read, write and remove, and returns its path.
func hostFile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "evalfleet-host-") //nolint:usetesting // a folder that other users can walk to
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "canary")
	require.NoError(t, os.WriteFile(file, []byte("of the host"), 0o600))
	require.NoError(t, os.Chmod(file, 0o666))
	require.NoError(t, os.Chmod(dir, 0o777))
	return file
}

// refusesToStartIn asserts that no command starts in a working directory, for a reason that lies in its path.
func (b *box) refusesToStartIn(cwd, user string) {
	b.Helper()
	r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"pwd"}, Cwd: cwd, User: user})
	require.Error(b, err, "in %s as %q: %s", cwd, user, r.GetStdout())
	require.Contains(b, []errorsv1.ErrorReason{
		errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH, errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND,
		errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION, // the kernel may forbid root to follow links of others in /tmp
	}, rpcerr.Reason(err), "in %s as %q: %v", cwd, user, err)
	require.Contains(b, err.Error(), "start in "+strings.TrimSuffix(cwd, "/"))
}

// list returns the paths in a folder.
func (b *box) list(path string) (names []string, err error) {
	b.Helper()
	err = b.client.Once(b.Context(), func(api guestv1.GuestServiceClient) error {
		resp, err := api.ListFiles(b.Context(), &guestv1.ListFilesRequest{Path: path})
		for _, f := range resp.GetFiles() {
			names = append(names, f.GetPath())
		}
		return err
	})
	return names, err
}

// remove removes a file or a folder with all in it.
func (b *box) remove(path string) error {
	b.Helper()
	return b.client.Once(b.Context(), func(api guestv1.GuestServiceClient) error {
		_, err := api.RemoveFile(b.Context(), &guestv1.RemoveFileRequest{Path: path, Recursive: true})
		return err
	})
}
