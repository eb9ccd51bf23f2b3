package dirlock_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/dirlock"
	"github.com/evalfleet/evalfleet/pkg/version"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dir(t *testing.T) dirlock.Dir {
	t.Helper()
	return dirlock.Dir{Path: t.TempDir(), Option: "--data-dir"}
}

// listen takes a free port.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(waittest.Bound)))
	return l
}

func TestTheSecondFindsTheFirst(t *testing.T) {
	t.Parallel()
	d := dir(t)
	lock, _, err := d.Claim(t.Context())
	require.NoError(t, err)
	require.NotNil(t, lock)
	require.NoError(t, lock.Announce("127.0.0.1:1"))

	second, holder, err := d.Claim(t.Context())
	require.NoError(t, err)
	assert.Nil(t, second)
	assert.Equal(t, dirlock.Holder{Address: "127.0.0.1:1", PID: os.Getpid(), Version: version.String()}, holder)
	b, err := os.ReadFile(filepath.Join(d.Path, "lock"))
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
	d := dir(t)
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
	d := dir(t)
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	synctest.Test(t, func(t *testing.T) {
		lock, _, err := d.Claim(t.Context())
		require.NoError(t, err)
		left := must(json.Marshal(dirlock.Holder{Address: "127.0.0.1:1", PID: dead.ProcessState.Pid()}))
		require.NoError(t, os.WriteFile(filepath.Join(d.Path, "lock"), left, 0o600))
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
	d := dir(t)
	lock, _, err := d.Claim(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, _, err = d.Claim(ctx)
	assert.ErrorContains(t, err, "data directory "+d.Path+" is held by process ")
	assert.ErrorContains(t, err, "which takes no clients; try again, or name another with --data-dir")
	require.NoError(t, lock.Release())
}

// An interrupted wait does not report the holder of the folder.
func TestAnInterruptedWaitIsNoHeldFolder(t *testing.T) {
	t.Parallel()
	d := dir(t)
	lock, _, err := d.Claim(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = d.Claim(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = d.Take(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	require.NoError(t, lock.Announce("127.0.0.1:0")) // where no process answers
	_, err = d.Take(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	require.NoError(t, lock.Release())
}

// A pipe simulates a file on a failing disk: it can be locked and not written.
func TestALockThatCannotBeWrittenIsLetGo(t *testing.T) {
	t.Parallel()
	d := dir(t)
	path := filepath.Join(d.Path, "lock")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	lock, _, err := d.Claim(t.Context())
	assert.ErrorContains(t, err, "write the lock: ")
	assert.Nil(t, lock)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	// Waits where another test forks just now, for ever where the lock is held.
	assert.NoError(t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
}

func TestAServerThatAnswersIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	l, s := listen(t), grpc.NewServer()
	healthv1.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	d := dir(t)
	d.Path = filepath.Join(d.Path, "made", "here")
	lock, err := d.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Announce(l.Addr().String()))
	_, err = d.Take(t.Context())
	held := &dirlock.HeldError{}
	require.ErrorAs(t, err, &held)
	assert.Equal(t, os.Getpid(), held.Holder.PID)
	assert.ErrorContains(t, err, "data directory "+d.Path+" is held by process ")
	assert.ErrorContains(t, err, "which serves at "+l.Addr().String()+"; stop it, or name another with --data-dir")
	require.NoError(t, lock.Release())
}

// A process that was killed has its lock and its port until the kernel has cleaned it up, and no longer answers.
func TestADyingServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	l, d := listen(t), dir(t)
	lock, err := d.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Announce(l.Addr().String()))
	type taken struct {
		lock *dirlock.Lock
		err  error
	}
	next := make(chan taken)
	go func() {
		lock, err := d.Take(t.Context())
		next <- taken{lock, err}
	}()
	asked, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, lock.Release())
	require.NoError(t, asked.Close())
	got := waittest.For(t, next, "the lock that was released")
	require.NoError(t, got.err)
	require.NoError(t, got.lock.Release())
}

func TestASilentServerIsNamedInTheEnd(t *testing.T) {
	t.Parallel()
	l, d := listen(t), dir(t)
	lock, err := d.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Announce(l.Addr().String()))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // connections wait in the listener's queue
	defer cancel()
	_, err = d.Take(ctx)
	assert.ErrorContains(t, err, "which does not answer at "+l.Addr().String()+"; end it, or name another with --data-dir")
	require.NoError(t, lock.Release())
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
