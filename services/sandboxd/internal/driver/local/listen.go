package local

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

// controlFolder is the folder of a box in which this program listens. Only the box's guest has it open.
const controlFolder = "ctl"

// door is where the guest of a box comes in: this process listens there.
type door struct {
	record   *record
	listener *net.UnixListener
	conns    chan net.Conn // of one: the newest connection that nobody has taken
	closed   chan struct{}
	once     sync.Once
	log      *slog.Logger
}

// listen listens in the control folder. A socket that an earlier process left is replaced.
func listen(folder string, rec *record, log *slog.Logger) (*door, error) {
	dir, err := os.OpenFile(filepath.Join(folder, controlFolder), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the control folder of a box: %w", err)
	}
	defer dir.Close()
	// By way of the descriptor, since the path of a socket may not be longer than 107 bytes.
	path := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + guest.SocketName
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an old control socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the guest of a box: %w", err)
	}
	l.SetUnlinkOnClose(false) // the path is not valid for long
	// The guest is another user to the kernel. The folder above is closed to others, and who connects is checked.
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, fmt.Errorf("open the control socket to the guest: %w", err)
	}
	d := &door{record: rec, listener: l, conns: make(chan net.Conn, 1), closed: make(chan struct{}), log: log}
	go d.accept()
	return d, nil
}

// accept takes connections of the box's first process alone, and keeps the newest.
func (d *door) accept() {
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		if pid := peer(c); pid != d.record.PID {
			d.log.Warn("a stranger dialled the socket of a box", "box", d.record.ID, "pid", pid)
			c.Close()
			continue
		}
		d.offer(c)
	}
}

func (d *door) offer(c net.Conn) {
	for {
		select {
		case <-d.closed:
			c.Close()
			return
		case d.conns <- c:
			return
		default:
		}
		select {
		case old := <-d.conns:
			old.Close()
		default:
		}
	}
}

// close stops listening. Connections that were handed out stay open.
func (d *door) close() {
	d.once.Do(func() {
		close(d.closed)
		d.listener.Close()
		select {
		case c := <-d.conns:
			c.Close()
		default:
		}
	})
}

// peer is the process at the other end, in this program's process namespace.
func peer(c *net.UnixConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1
	}
	pid := -1
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
