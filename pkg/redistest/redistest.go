// Package redistest provides tests and benchmarks with a Redis server of their own. It has a socket and no port, stores
// nothing on a disk, and requires Debian's redis-server, which the project's set-up installs.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/evalfleet/evalfleet/pkg/redisclient"
)

const startTimeout = time.Minute

// Server is a Redis server. Its methods may be called within a bubble of testing/synctest, in which time then stands
// still, but not concurrently.
type Server struct {
	dir string
	// orders and results are those of keep, which is outside of bubbles, as a process that lives on must be.
	orders  chan func() error
	results chan error

	cmd    *exec.Cmd
	exited chan struct{}
}

// New starts a server that ends with the test. Without the program the test fails.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := Start(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts a server. Close must be called.
func Start(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp("", "redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, orders: make(chan func() error), results: make(chan error)}
	go s.keep()
	if err := s.Run(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Socket returns the path of the server's socket, which stays the same when it is started again.
func (s *Server) Socket() string { return filepath.Join(s.dir, "redis.sock") }

// Options return how a client reaches the server.
func (s *Server) Options() redisclient.Options {
	return redisclient.Options{Addresses: []string{s.Socket()}}
}

// Run starts the server again after Stop, with no data, and returns when it answers.
func (s *Server) Run(ctx context.Context) error { return s.order(func() error { return s.run(ctx) }) }

// Stop kills the server, with all its data. Then connections are refused.
func (s *Server) Stop() { _ = s.order(s.stop) }

// Hang stops the server from answering, with connections open, until Resume.
func (s *Server) Hang() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends Hang.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// Close ends the server and removes its folder.
func (s *Server) Close() error {
	s.Stop()
	close(s.orders)
	return os.RemoveAll(s.dir)
}

// keep does what is ordered, until Close.
func (s *Server) keep() {
	for order := range s.orders {
		s.results <- order()
	}
}

func (s *Server) order(f func() error) error {
	s.orders <- f
	return <-s.results
}

func (s *Server) run(ctx context.Context) error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("there is no Redis to start: %w; install Debian's redis-server (`make setup` does, as root)", err)
	}
	log := filepath.Join(s.dir, "log")
	s.cmd = exec.Command(program, "--port", "0", "--unixsocket", s.Socket(), "--dir", s.dir, "--save", "", "--appendonly", "no", "--logfile", log) // not bound to ctx: it lives until Stop
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, exited := make(chan error), make(chan struct{})
	go func() {
		// The server is signalled when the thread that started it ends, so the thread stays, also for other processes that
		// were started from it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.exited = exited
	deadline := time.After(startTimeout)
	client := redisclient.Open(s.Options())
	defer client.Close()
	for client.Check(ctx) != nil {
		select {
		case <-exited:
			text, _ := os.ReadFile(log)
			return fmt.Errorf("redis-server ended: %s", text)
		case <-deadline:
			return errors.New("redis-server does not answer")
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (s *Server) stop() error {
	if s.exited != nil {
		_ = s.cmd.Process.Kill()
		<-s.exited
		s.exited = nil
	}
	return os.RemoveAll(s.Socket())
}
