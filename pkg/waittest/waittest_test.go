package waittest_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// failing is a test that keeps why it failed.
type failing struct {
	testing.TB
	why string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestForNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, ended := &failing{TB: t}, make(chan struct{})
		go func() {
			defer close(ended)
			waittest.For(f, make(chan int), "the tool to start")
		}()
		<-ended
		assert.Equal(t, "missing after 1m0s: the tool to start", f.why)
	})
}

func TestForReturnsWhatCame(t *testing.T) {
	t.Parallel()
	came := make(chan int, 1)
	came <- 7
	assert.Equal(t, 7, waittest.For(t, came, "a number"))
	close(came)
	assert.Zero(t, waittest.For(t, came, "the end"))
	waittest.Return(t, func() { came = nil }, "a function that returns")
	assert.Nil(t, came)
}

func TestAContextHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		<-waittest.Context(t).Done()
		assert.Equal(t, waittest.Bound, time.Since(start))
	})
}
