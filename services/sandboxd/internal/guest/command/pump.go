package command

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/spool"
)

// A pump moves what a command prints from a pipe into a spool, for as long as the command's leader lives; then it takes
// what is in the pipe at that moment. Background children that hold the other end do not hold the call: what they print
// later is read and forgotten, so that they neither block nor die of it.
type pump struct {
	fd    int
	file  *os.File
	spool *spool.Spool
	last  atomic.Bool // the leader has ended
	over  chan struct{}
}

const pumpBuffer = 32 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, pumpBuffer); return &b }}

// readAlong is how long a command runs before its pumps start.
const readAlong = time.Millisecond

// newPump makes a pump of fd, which must not block.
func newPump(fd int, s *spool.Spool) *pump { return &pump{fd: fd, spool: s} }

// start begins to read along.
func (p *pump) start() {
	p.file, p.over = os.NewFile(uintptr(p.fd), "pipe"), make(chan struct{})
	go p.run()
}

// finish takes what is in the pipe now and ends the stream.
func (p *pump) finish() {
	if p.file == nil {
		buf := buffers.Get().(*[]byte)
		end := p.drain(p.fd, *buf)
		buffers.Put(buf)
		if end {
			unix.Close(p.fd)
			return
		}
		p.last.Store(true)
		p.start() // others hold the pipe: read and forget
		return
	}
	p.last.Store(true)
	_ = p.file.SetReadDeadline(time.Unix(1, 0)) // wakes run; a pipe at its end has no need of it
	<-p.over
}

func (p *pump) run() {
	defer p.file.Close()
	raw, err := p.file.SyscallConn()
	if err != nil {
		close(p.over)
		return
	}
	buf := buffers.Get().(*[]byte)
	end := false
	_ = raw.Read(func(fd uintptr) bool {
		for !p.last.Load() {
			n, err := read(int(fd), *buf)
			if errors.Is(err, unix.EAGAIN) {
				return p.last.Load()
			}
			if n <= 0 {
				end = true
				return true
			}
			_, _ = p.spool.Write((*buf)[:n])
		}
		return true
	})
	if !end {
		_ = raw.Control(func(fd uintptr) { end = p.drain(int(fd), *buf) })
	}
	buffers.Put(buf)
	close(p.over)
	if !end {
		_ = p.file.SetReadDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, p.file)
	}
}

// drain takes the bytes that are in the pipe now, which are never more than a pipe can hold; end says that no process
// holds the other side.
func (p *pump) drain(fd int, buf []byte) (end bool) {
	for left := maxPipe; left > 0; {
		n, err := read(fd, buf)
		if n <= 0 {
			return !errors.Is(err, unix.EAGAIN)
		}
		_, _ = p.spool.Write(buf[:n])
		left -= n
	}
	return false
}

// maxPipe is the largest pipe that a program without privileges can make.
const maxPipe = 1 << 20

func read(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
