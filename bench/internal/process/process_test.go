package process_test

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/bench/internal/process"
)

// TestMain makes the test binary its own child: with a first argument of these it acts as one.
func TestMain(m *testing.M) {
	switch kind := append(os.Args, "")[1]; kind {
	case "good", "failing":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		_ = process.Ready(os.Stdout, "here")
		<-asked
		if kind == "failing" {
			fail()
		}
	case "careless":
		_ = process.Ready(os.Stdout, "here")
		wait()
	case "processors":
		_ = process.Ready(os.Stdout, fmt.Sprint(runtime.NumCPU()))
		wait()
	case "early":
		fail()
	case "mute":
		fmt.Println("hello")
		wait()
	default:
		goleak.VerifyTestMain(m)
	}
}

// wait is for children that no signal wakes. One whose goroutines all sleep without a timer would end at once, as a
// deadlock.
func wait() { <-time.After(time.Hour) }

func fail() {
	fmt.Fprintln(os.Stderr, "the reason")
	os.Exit(3)
}

func TestAChildSaysWhereItServesAndEndsWhenAsked(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"good", "careless"} {
		c, err := process.Start(t.Context(), os.Args[0], kind)
		require.NoError(t, err)
		assert.Equal(t, "here", c.Address)
		cpu, err := c.CPU()
		require.NoError(t, err)
		assert.Positive(t, cpu)
		require.NoError(t, c.Stop())
	}
}

func TestAChildThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := process.Start(t.Context(), os.Args[0], "early")
	require.ErrorContains(t, err, "the reason")
	_, err = process.Start(t.Context(), os.Args[0], "mute")
	require.ErrorContains(t, err, "hello")
	c, err := process.Start(t.Context(), os.Args[0], "failing")
	require.NoError(t, err)
	require.ErrorContains(t, c.Stop(), "the reason")
}

// Both clocks count the same: what the kernel charges to this process.
func TestProcessorTimeIsThatOfTheKernel(t *testing.T) {
	t.Parallel()
	for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; { // Nothing but that.
	}
	var before, after syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	cpu, err := process.CPU(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	total := func(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }
	assert.GreaterOrEqual(t, cpu, total(before)-20*time.Millisecond)
	assert.LessOrEqual(t, cpu, total(after)+20*time.Millisecond)
	_, err = process.CPU(1 << 22)
	require.Error(t, err)
}

// A child that is started on a processor sees no other, and this process is moved back.
func TestAChildHasItsProcessor(t *testing.T) { //nolint:paralleltest // It moves all threads.
	cpu, restore, err := process.KeepOff()
	require.NoError(t, err)
	var c *process.Child
	require.NoError(t, process.On(cpu, func() (err error) {
		c, err = process.Start(t.Context(), os.Args[0], "processors")
		return err
	}))
	assert.Equal(t, fmt.Sprint(1), c.Address)
	require.NoError(t, c.Stop())
	before := allowed(t)
	require.NoError(t, restore())
	assert.GreaterOrEqual(t, allowed(t), before)
	assert.Equal(t, runtime.NumCPU(), allowed(t))
}

// allowed is how many processors this thread may use.
func allowed(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	return set.Count()
}

func TestTheMostMemoryIsAtLeastThatOfNow(t *testing.T) {
	t.Parallel()
	c, err := process.Start(t.Context(), os.Args[0], "good")
	require.NoError(t, err)
	now, err := c.Resident()
	require.NoError(t, err)
	most, err := c.MostResident()
	require.NoError(t, err)
	assert.Positive(t, now)
	assert.GreaterOrEqual(t, most, now)
	require.NoError(t, c.Stop())
}
