package threadtest_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/threadtest"
)

// TestMain runs the tests beside a goroutine that wants the first thread: it has it when it runs alone.
func TestMain(m *testing.M) {
	runtime.LockOSThread()
	code := make(chan int)
	go func() { code <- m.Run() }()
	runtime.UnlockOSThread()
	os.Exit(<-code)
}

func TestTheFirstThreadIsNeverTaken(t *testing.T) {
	t.Parallel()
	const tries = 1000
	for range tries {
		thread := make(chan int, 1)
		threadtest.Go(func() { thread <- unix.Gettid() })
		assert.NotEqual(t, unix.Getpid(), waittest.For(t, thread, "a thread"))
	}
}
