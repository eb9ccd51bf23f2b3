// Package machinetest runs a program in an emulated machine, for tests of a kernel set up differently from this
// machine's: there the cgroup controllers are those of version 2, root has every capability, and there is no
// surrounding container.
//
// The machine is QEMU without acceleration, Debian's kernel for clouds, and a root file system in memory that is made
// of this machine's own files, as the image of sandboxes is. It has no network and no disk. `make setup` installs the
// emulator and the kernel; see docs/adr/0022-emulated-machine.md.
package machinetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/image"
)

const (
	// emulator is QEMU's program.
	emulator = "qemu-system-x86_64"
	// busybox must be linked statically, as Debian's busybox-static is: it starts the machine.
	busybox = "/bin/busybox"
	// kernel is its path from `make setup`, below the module's root.
	kernel = ".tools/machine/vmlinuz"

	// commandLine has no_timer_check, since an emulated timer that is late on a busy machine passes for a broken one,
	// and the kernel would panic.
	commandLine = "console=ttyS0 panic=-1 quiet no_timer_check"

	memory = "4096" // MiB
	cpus   = "2"
)

// Machine is a program to run, with its files.
type Machine struct {
	// Files are copied into the machine before the script runs: path there, which is absolute, to file here. All are
	// executable and readable by every user.
	Files map[string]string
	// Script is read by bash as root, in /, with /proc, /sys, /dev and cgroups of version 2 mounted.
	Script string
	// Timeout bounds the machine's life.
	Timeout time.Duration
}

// Run boots the machine and returns the script's output and its exit code. It skips the test if the emulator or the
// kernel is not installed, and fails it if the machine does not reach the end of its script in time. A machine whose
// clock stands still is not its script's fault: it is booted once more.
func Run(t testing.TB, m Machine) (output string, code int) {
	t.Helper()
	kernel := needs(t)
	initrd := filepath.Join(t.TempDir(), "initrd")
	require.NoError(t, writeInitrd(t.Context(), initrd, m))
	output, err := boot(t.Context(), m, kernel, initrd)
	if errors.Is(err, errStandstill) {
		t.Logf("%v; it is booted once more; its console:\n%s", err, output)
		output, err = boot(t.Context(), m, kernel, initrd)
	}
	require.NoError(t, err, "the machine did not end by itself; its console:\n%s", output)
	said := exitLine.FindStringSubmatch(output)
	require.NotNil(t, said, "the machine ended without an exit code; its console:\n%s", output)
	code, err = strconv.Atoi(said[1])
	require.NoError(t, err)
	return output, code
}

// standstill is how long a machine may show no beat, which it does every ten seconds of its time.
const standstill = 5 * time.Minute

var errStandstill = fmt.Errorf("the machine runs, and its clock has stood still for %v", standstill)

// boot runs the machine to its end and returns its console without the beats.
func boot(ctx context.Context, m Machine, kernel, initrd string) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := exec.CommandContext(ctx, emulator, "-nodefaults", "-no-user-config", "-no-reboot", "-nographic", "-serial", "stdio",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", cpus, "-m", memory,
		"-kernel", kernel, "-initrd", initrd, "-append", commandLine)
	// A test run that is killed leaves no machine. The signal comes when the thread that started it ends, so the thread
	// stays, which others would end: a test of namespaces spoils its thread.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	silent := time.AfterFunc(standstill, func() { stop(errStandstill) })
	defer silent.Stop()
	console := &console{beat: func() { silent.Reset(standstill) }}
	cmd.Stdout, cmd.Stderr = console, console
	err = cmd.Run()
	return console.text.String() + string(console.line), errors.Join(context.Cause(ctx), err)
}

// console is what a machine prints, without carriage returns and beats.
type console struct {
	beat func() // is called after each
	line []byte // the last line, unfinished
	text strings.Builder
}

// Write implements io.Writer.
func (c *console) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '\r':
		case b != '\n':
			c.line = append(c.line, b)
		case bytes.HasSuffix(c.line, []byte(beatLine)): // It may come amid another line.
			c.line = c.line[:len(c.line)-len(beatLine)]
			c.beat()
		default:
			c.text.Write(append(c.line, b))
			c.line = c.line[:0]
		}
	}
	return len(p), nil
}

// beatLine is what a machine prints while its clock goes on.
const beatLine = "machinetest: beat"

// exitLine is the last thing that a machine prints.
var exitLine = regexp.MustCompile(`(?m)^machinetest: exit (\d+)$`)

// needs returns the kernel's path.
func needs(t testing.TB) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIP: the emulated machine is an x86-64 one, and runs programs of this architecture only there")
	}
	root, err := moduleRoot()
	require.NoError(t, err)
	path := filepath.Join(root, kernel)
	for _, file := range []string{path, busybox} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("SKIP: there is no emulated machine without %s; `make setup` installs it as root of a Debian", file)
		}
	}
	if _, err := exec.LookPath(emulator); err != nil {
		t.Skipf("SKIP: there is no emulated machine without %s; `make setup` installs it as root of a Debian", emulator)
	}
	return path
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the module's root: no go.mod above the working directory")
		}
	}
}

// unpack is the first program: it creates a root file system in memory, since pivot_root cannot leave the initial one,
// and continues there.
const unpack = `#!/busybox sh
/busybox mkdir -p /image /root
/busybox mount -t tmpfs -o mode=755 machine /root
/busybox tar xf /image.tar -C /image
/busybox find /image -name '*.tar' -exec /busybox tar xf {} -C /root \;
/busybox rm -r /image /image.tar
/busybox cp -a /machine/. /root/
/busybox cp /busybox /root/usr/bin/busybox
/busybox rm -r /machine
exec /busybox switch_root /root /usr/bin/machine
`

// start is the second program, in the new root.
const start = `#!/usr/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /dev/pts /dev/shm
busybox mount -t devpts -o ptmxmode=666 pts /dev/pts
busybox mount -t tmpfs shm /dev/shm
busybox mount -t cgroup2 cgroup /sys/fs/cgroup
busybox ip link set lo up
chmod 1777 /tmp
cd /
(while sleep 10; do echo "machinetest: beat"; done) &
bash /usr/bin/script
echo "machinetest: exit $?"
busybox poweroff -f
`

// writeInitrd writes the archive that the kernel unpacks into its first root.
func writeInitrd(ctx context.Context, path string, m Machine) (err error) {
	img, err := image.Find(ctx, image.Config{SearchPath: "/usr/bin:/bin"})
	if err != nil {
		return err
	}
	files, err := os.CreateTemp(filepath.Dir(path), "image")
	if err != nil {
		return err
	}
	defer files.Close()
	if err := img.Write(ctx, files, "machine", nil); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := newArchive(out)
	w.copy("/busybox", busybox)
	w.copy("/image.tar", files.Name())
	w.text("/init", unpack)
	w.text("/machine/usr/bin/machine", start)
	w.text("/machine/usr/bin/script", m.Script)
	for there, here := range m.Files {
		w.copy("/machine"+there, here)
	}
	return w.close()
}

// archive writes the kernel's own form of cpio archives (`newc`,
// Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	out     *bufio.Writer
	written int
	folders map[string]bool
	err     error
}

func newArchive(w io.Writer) *archive {
	return &archive{out: bufio.NewWriter(w), folders: map[string]bool{"/": true}}
}

const (
	folderMode  = 0o040755
	programMode = 0o100755
)

func (a *archive) copy(name, from string) {
	content, err := os.ReadFile(from)
	a.err = errors.Join(a.err, err)
	a.file(name, content)
}

func (a *archive) text(name, content string) { a.file(name, []byte(content)) }

func (a *archive) file(name string, content []byte) {
	a.folder(filepath.Dir(name))
	a.entry(name, programMode, content)
}

func (a *archive) folder(name string) {
	if a.folders[name] {
		return
	}
	a.folders[name] = true
	a.folder(filepath.Dir(name))
	a.entry(name, folderMode, nil)
}

func (a *archive) entry(name string, mode int, content []byte) {
	name = name[1:]
	// inode, mode, owner, group, links, time, size, four numbers of devices, length of the name, checksum
	a.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", 0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name))
	a.pad()
	a.write(content)
	a.pad()
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() { a.write(make([]byte, -a.written&3)) }

func (a *archive) write(b []byte) {
	if a.err != nil {
		return
	}
	n, err := a.out.Write(b)
	a.written, a.err = a.written+n, err
}

func (a *archive) close() error {
	a.entry("/TRAILER!!!", 0, nil)
	return errors.Join(a.err, a.out.Flush())
}
