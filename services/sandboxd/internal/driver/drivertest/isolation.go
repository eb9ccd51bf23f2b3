package drivertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// isolation: what a box cannot reach, see or become.
func isolation(t *testing.T, h Harness) {
	dir := t.TempDir()
	b := newBox(t, h.New(t, dir), nil)
	t.Run("no network, not even to the host's loopback", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		abstract, err := net.Listen("unix", "@evalfleet-drivertest-"+b.spec.ID)
		require.NoError(t, err)
		defer abstract.Close()
		assert.Equal(t, "refused unreachable no-name no-socket no-family lo", b.python(`
import socket, sys, errno
def attempt(family, address, names):
    try:
        s = socket.socket(family); s.settimeout(5); s.connect(address)
        return 'CONNECTED'
    except OSError as e:
        return names.get(e.errno, repr(e))
out = [attempt(socket.AF_INET, ('127.0.0.1', int(sys.argv[1])), {errno.ECONNREFUSED: 'refused'})]
out.append(attempt(socket.AF_INET, ('192.0.2.1', 80), {errno.ENETUNREACH: 'unreachable'}))
try: socket.getaddrinfo('example.org', 80); out.append('RESOLVED')
except OSError: out.append('no-name')
out.append(attempt(socket.AF_UNIX, '\0' + sys.argv[2], {errno.ECONNREFUSED: 'no-socket'}))
out.append(attempt(socket.AF_VSOCK, (2, 1), {errno.EPERM: 'no-family', errno.EAFNOSUPPORT: 'no-family'}))
out += [n for _, n in socket.if_nameindex()]
print(*out)`, strconv.Itoa(l.Addr().(*net.TCPAddr).Port), "evalfleet-drivertest-"+b.spec.ID))
	})
	t.Run("its own loopback works", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, "hello", b.sub(t).python(`
import socket
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname())
s.accept()[0].sendall(b'hello')
print(c.recv(5).decode())`))
	})
	t.Run("files of the host cannot be written", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		for _, path := range append([]string{"/usr", "/usr/bin", "/proc/sys/kernel", b.report.GuestPath}, h.Unwritable...) {
			for _, user := range b.users(h) {
				if h.OwnSystem && user == "root" && strings.HasPrefix(path, "/usr") {
					continue
				}
				r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", `touch "$0/x" 2>/dev/null || { [ -f "$0" ] && echo >> "$0"; } || rm -rf "$0" `, path}, User: user})
				require.NoError(t, err)
				assert.NotZero(t, r.GetExitCode(), "%s as %q", path, user)
			}
		}
		b.fails("find / -xdev -type b 2>/dev/null | grep .") // no disk of the host
	})
	t.Run("the platform's own program cannot be replaced", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		folder := filepath.Dir(b.report.GuestPath)
		for _, user := range b.users(h) {
			for _, attempt := range []string{
				"mv $0 /moved", "mv $0 $0.moved", "rm -r $0", "touch $0/x", "ln -sfn /tmp $0/x", "mv $0/guestd /tmp/", "ln -sf /bin/true $0/guestd", "chmod 777 $0", "chmod 777 $0/guestd",
			} {
				r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", attempt, folder}, User: user})
				require.NoError(t, err)
				assert.NotZero(t, r.GetExitCode(), "%s as %q", attempt, user)
			}
		}
		assert.NotEmpty(t, b.sh("%s version", b.report.GuestPath))
	})
	t.Run("the kernel of the host cannot be read or turned", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		hidden := "diskstats partitions swaps locks zoneinfo iomem"
		if h.OwnSystem {
			hidden = "" // what an engine hides is its own choice
		}
		for _, user := range b.users(h) {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", `
				cd /proc
				for f in sysrq-trigger irq/default_smp_affinity sys/kernel/panic sys/kernel/core_pattern sys/vm/drop_caches \
					sys/net/ipv4/ip_forward sys/user/max_user_namespaces sys/fs/file-max; do
					[ ! -e $f ] || ! (: >> $f) 2>/dev/null || { echo "$f is writable"; exit 1; }
				done
				for f in kcore keys timer_list $0; do
					[ ! -e $f ] || [ -z "$(head -c 1 $f | tr '\0' x)" ] || { echo "$f is readable"; exit 2; }
				done`, hidden}, User: user})
			require.NoError(t, err)
			assert.Zero(t, r.GetExitCode(), "as %q: %s", user, r.GetStdout())
		}
	})
	// An engine names its containers in /proc.
	runWhere(t, !h.OwnSystem, "nothing tells where the box is kept", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		for _, user := range b.users(h) {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "cat /proc/self/cgroup /proc/1/cgroup; grep -c . /proc/self/mountinfo; cat /proc/self/mountinfo | grep " + b.spec.ID}, User: user})
			require.NoError(t, err)
			for line := range strings.Lines(string(r.GetStdout())) {
				if strings.HasPrefix(line, "0::") {
					continue // births into a group of version 2 need its place
				}
				assert.NotContains(t, line, b.spec.ID, "as %q", user)
			}
		}
	})
	t.Run("secrets of the host are not there", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		home, err := os.UserHomeDir()
		require.NoError(t, err)
		canary := filepath.Join(home, "evalfleet-canary-"+b.spec.ID)
		secrets := append([]string{dir, "/etc/shadow", "/root/.ssh", "/run/secrets", "/var/run/docker.sock"}, h.Secrets...)
		if os.WriteFile(canary, []byte("secret"), 0o644) == nil {
			t.Cleanup(func() { os.Remove(canary) })
			secrets = append(secrets, canary)
		}
		for _, path := range secrets {
			for _, user := range b.users(h) {
				r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"test", "-e", path}, User: user})
				require.NoError(t, err)
				assert.NotZero(t, r.GetExitCode(), "%s as %q", path, user)
			}
		}
		for _, user := range b.users(h) {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "find / -xdev -name 'evalfleet-canary*' 2>/dev/null; cat /proc/mounts | grep -c " + b.spec.ID}, User: user})
			require.NoError(t, err)
			assert.Equal(t, "0\n", string(r.GetStdout()), "the box does not know where it is kept")
		}
	})
	t.Run("no foreign process is seen or reached", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, b.driver, nil) // of its own, since it kills all that it can
		cmd := exec.Command("sleep", "98765")
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		assert.Equal(t, "0", b.running("sleep", "98765"))
		for _, user := range b.users(h) {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", fmt.Sprintf("kill -9 %d; kill -9 -1; :", cmd.Process.Pid)}, User: user})
			require.NoError(t, err)
			assert.Contains(t, []int32{0, 137}, r.GetExitCode())
		}
		assert.NoError(t, cmd.Process.Signal(syscall.Signal(0)), "it lives")
	})
	t.Run("the environment is clean", func(t *testing.T) {
		t.Parallel()
		r, err := b.sub(t).exec(&sandboxv1.ExecSpec{Argv: []string{"env"}, Env: map[string]string{"NAMED": "by the task"}})
		require.NoError(t, err)
		var names []string
		for line := range strings.Lines(string(r.GetStdout())) {
			name, _, _ := strings.Cut(line, "=")
			names = append(names, name)
		}
		sort.Strings(names)
		assert.Equal(t, []string{"HOME", "LANG", "NAMED", "PATH"}, names)
		assert.Contains(t, string(r.GetStdout()), "NAMED=by the task\n")
	})
	t.Run("no powers", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		for _, user := range b.users(h) {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", `
				grep -E '^(CapPrm|CapEff|CapBnd|CapAmb):' /proc/self/status | grep -v 0000000000000000 && exit 1
				grep -q '^NoNewPrivs:.1' /proc/self/status || exit 2
				unshare -Ur true && exit 3
				mount -t tmpfs none /tmp && exit 4
				hostname other && exit 5
				chroot / true && exit 6
				[ "$(id -u)" = 0 ] || { su -c true && exit 7; }
				exit 0`}, User: user})
			require.NoError(t, err)
			assert.Zero(t, r.GetExitCode(), "as %q: %s%s", user, r.GetStdout(), r.GetStderr())
		}
	})
	t.Run("the guest keeps to itself", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		for _, user := range b.users(h) {
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", `
				ls -l /proc/1/fd/ 2>/dev/null | grep -q socket && exit 1
				cat /proc/1/environ /proc/1/maps /proc/1/mem 2>/dev/null && exit 2
				ls /proc/1/cwd/ 2>/dev/null && exit 3
				exit 0`}, User: user})
			require.NoError(t, err)
			assert.Zero(t, r.GetExitCode(), "as %q: %s", user, r.GetStdout())
		}
	})
	t.Run("the guest outlives every signal", func(t *testing.T) {
		t.Parallel()
		own := newBox(t, b.driver, nil)
		hello, err := own.client.Hello(t.Context())
		require.NoError(t, err)
		for _, user := range own.users(h) {
			_, err := own.exec(&sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "for i in $(seq 1 64); do kill -$i 1; done; for i in $(seq 1 64); do kill -$i -1; done 2>/dev/null"}, User: user})
			require.NoError(t, err)
		}
		own.client.Close()
		own.client = own.connect("")
		again, err := own.client.Hello(t.Context())
		require.NoError(t, err)
		assert.Equal(t, hello.GetBootId(), again.GetBootId())
		assert.Equal(t, "fine\n", own.sh("echo fine"))
	})
	t.Run("boxes do not see each other", func(t *testing.T) {
		t.Parallel()
		other := newBox(t, b.driver, func(s *driver.Spec) { s.Limits = small })
		other.sh("touch /tmp/mine; sleep 1000 >/dev/null 2>&1 & echo started")
		b := b.sub(t)
		b.fails("test -e /tmp/mine")
		require.Eventually(t, func() bool { return other.running("sleep", "1000") == "1" }, waittest.Bound, 10*time.Millisecond)
		assert.Equal(t, "0", b.running("sleep", "1000"))
	})
}

// users are the possible users of commands: the box's own, and root if there is one.
func (b *box) users(h Harness) []string {
	if h.OneUser {
		return []string{""}
	}
	return []string{"", "root"}
}
