// Package guestlistener is the host's end of the one connection between a sandbox and its host: a socket in a folder
// that the sandbox's guest can reach. This process listens there; the guest dials, also after this process was replaced
// by another one.
package guestlistener

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

	"github.com/evalfleet/evalfleet/pkg/connlimit"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

// Listener is where the guest of one box comes in. Its methods are safe for concurrent use.
type Listener struct {
	admit     func(pid int) bool
	listener  *net.UnixListener
	conns     chan net.Conn // of one: the newest connection that nobody has taken
	connected chan struct{}
	closed    chan struct{}
	once      sync.Once
	log       *slog.Logger
}

// Listen listens in a folder. A socket that an earlier process left is replaced. Admit reports whether the process at
// the other end is the box's guest: its id is that in this program's process namespace, 0 where it cannot be seen from
// there. Admit may wait.
func Listen(folder string, admit func(pid int) bool, log *slog.Logger) (*Listener, error) {
	dir, err := os.OpenFile(folder, unix.O_PATH|unix.O_DIRECTORY, 0)
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
	// The guest may be another user to the kernel. The folder above is closed to others, and who connects is checked.
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, fmt.Errorf("open the control socket to the guest: %w", err)
	}
	d := &Listener{admit: admit, listener: l, conns: make(chan net.Conn, 1), connected: make(chan struct{}), closed: make(chan struct{}), log: log}
	go d.accept(filepath.Base(filepath.Dir(folder)))
	return d, nil
}

// Conns gives the guest's connections; the newest replaces one that nobody has taken.
func (d *Listener) Conns() <-chan net.Conn { return d.conns }

// Connected is closed when the guest has come for the first time.
func (d *Listener) Connected() <-chan struct{} { return d.connected }

// Closed is closed when the door is.
func (d *Listener) Closed() <-chan struct{} { return d.closed }

// Close stops listening. Connections that were handed out stay open.
func (d *Listener) Close() {
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

// accept takes connections of the guest alone, and keeps the newest.
func (d *Listener) accept(box string) {
	guests := connlimit.RetryAccept(d.listener, d.log)
	strangers := 0
	for first := true; ; {
		conn, err := guests.Accept()
		if err != nil {
			return
		}
		c := conn.(*net.UnixConn) //nolint:forcetypeassert // The listener is of that kind.
		if pid := peer(c); !d.admit(pid) {
			say := d.log.Debug
			if strangers++; strangers&(strangers-1) == 0 { // the first, and fewer and fewer of those who follow
				say = d.log.Warn
			}
			say("a stranger dialled the socket of a box", "box", box, "pid", pid, "times", strangers)
			c.Close()
			continue
		}
		d.offer(c)
		if first {
			first = false
			close(d.connected)
		}
	}
}

func (d *Listener) offer(c net.Conn) {
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
