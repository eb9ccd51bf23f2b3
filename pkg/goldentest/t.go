package goldentest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
)

// T is the testing.TB of one case. A failure on it fails the case, which fails the test only if the case is not a known
// difference. Its methods are safe for concurrent use, except those that end the case (FailNow, Fatal, Skip), which
// only drive's own goroutine may call.
type T struct {
	testing.TB // the subtest: Helper, Name, TempDir and the like

	ctx     context.Context
	matcher *match.Matcher
	test    *testing.T
	inside  Case
	record  *record
}

// record is a case's report so far; a T for a bubble shares it.
type record struct {
	mu       sync.Mutex
	failed   bool
	failures []string
	logs     []string
	skipped  string
	cleanups []func()
	// closed means that the outcome is final; an abandoned case can no longer change it.
	closed bool
}

func newT(ctx context.Context, test *testing.T, c Case) *T {
	var opts []match.Option
	if absolute, ok := floatOf(c.Fields["tolerance"]); ok {
		opts = append(opts, match.Tolerance(absolute))
	}
	if share, ok := floatOf(c.Fields["relative_tolerance"]); ok {
		opts = append(opts, match.RelativeTolerance(share))
	}
	if c.Fields["compare"] == "lines in any order" {
		opts = append(opts, match.AnyLines())
	}
	return &T{TB: test, ctx: ctx, matcher: match.New(opts...), test: test, inside: c, record: &record{}}
}

// Equal fails the case if got differs from the record. Markers represent the same ids in every comparison of the case,
// and the case's own fields define the comparison: `tolerance` and `relative_tolerance`; `compare` with "lines in any
// order"; with "contains", by which only the texts in `contains` must occur in got; and with "never", which records a
// defect, so that equality fails the case.
func (t *T) Equal(want, got any, opts ...match.Option) bool {
	t.Helper()
	var found match.Differences
	switch t.inside.Fields["compare"] {
	case "never":
		if len(t.matcher.Equal(want, got, opts...)) > 0 {
			return true
		}
		t.Errorf("the recorded defect, which the platform must not have")
		return false
	case "contains":
		found = match.Contains(textsOf(t.inside.Fields["contains"]), got)
	default:
		found = t.matcher.Equal(want, got, opts...)
	}
	if len(found) > 0 {
		t.Errorf("differs from the record:\n%s", found)
	}
	return len(found) == 0
}

// Same reports whether got equals the record, and fails nothing: for a record that does not determine which of several
// ways produced it.
func (t *T) Same(want, got any, opts ...match.Option) bool {
	t.Helper()
	return len(t.matcher.Equal(want, got, opts...)) == 0
}

// EqualMessages is Equal for an expectation with a pool of messages: lists of its keys represent lists of messages, and
// messages have one id exactly if their keys are one. Got is of the recorded form with the messages themselves.
func (t *T) EqualMessages(want, got any, opts ...match.Option) bool {
	t.Helper()
	resolved, err := match.Messages(want)
	if err != nil {
		t.Errorf("%v", err)
		return false
	}
	return t.Equal(resolved, got, opts...)
}

// Bubble calls f in a bubble of testing/synctest, where time advances only when every goroutine waits. f's T reports to
// the case; its context belongs to the bubble. A bubble that blocks for ever fails the case.
func (t *T) Bubble(f func(*T)) {
	t.Helper()
	ended, inner := false, &record{}
	func() {
		defer func() {
			t.record.adopt(inner)
			if fault := recover(); fault != nil {
				t.record.fail(fmt.Sprintf("the bubble: %v", fault))
				ended = false
			}
		}()
		synctest.Test(t.test, func(test *testing.T) {
			bubble := *t
			bubble.TB, bubble.ctx, bubble.test, bubble.record = test, test.Context(), test, inner
			done := make(chan struct{})
			go func() {
				defer close(done)
				bubble.drive(func(t *T) { f(t); ended = true })
			}()
			<-done
		})
	}()
	if !ended {
		runtime.Goexit()
	}
}

// Context ends with the case or its timeout, before the functions given to Cleanup are called.
func (t *T) Context() context.Context { return t.ctx }

// Cleanup calls f when the case ends, the last one first. A failure in f is one of the case.
func (t *T) Cleanup(f func()) {
	t.record.mu.Lock()
	defer t.record.mu.Unlock()
	t.record.cleanups = append(t.record.cleanups, f)
}

// TempDir is as testing.T's. It ends a case whose outcome is decided.
func (t *T) TempDir() string {
	t.record.mu.Lock()
	closed := t.record.closed
	t.record.mu.Unlock()
	if closed {
		runtime.Goexit()
	}
	return t.TB.TempDir()
}

// Fail marks the case as failed.
func (t *T) Fail() { t.record.fail("") }

// FailNow marks the case as failed and ends it.
func (t *T) FailNow() { t.Fail(); runtime.Goexit() }

// Failed reports whether the case failed so far.
func (t *T) Failed() bool {
	t.record.mu.Lock()
	defer t.record.mu.Unlock()
	return t.record.failed
}

// Error reports a failure.
func (t *T) Error(args ...any) { t.record.fail(where() + fmt.Sprintln(args...)) }

// Errorf reports a failure.
func (t *T) Errorf(format string, args ...any) { t.record.fail(where() + fmt.Sprintf(format, args...)) }

// Fatal reports a failure and ends the case.
func (t *T) Fatal(args ...any) { t.Error(args...); runtime.Goexit() }

// Fatalf reports a failure and ends the case.
func (t *T) Fatalf(format string, args ...any) { t.Errorf(format, args...); runtime.Goexit() }

// Log adds a line to the output of a failed case.
func (t *T) Log(args ...any) { t.record.log(where() + fmt.Sprintln(args...)) }

// Logf adds a line to the output of a failed case.
func (t *T) Logf(format string, args ...any) { t.record.log(where() + fmt.Sprintf(format, args...)) }

// Skip ends the case as one without a driver, or without one here.
func (t *T) Skip(args ...any) { t.record.skip(fmt.Sprintln(args...)); runtime.Goexit() }

// Skipf ends the case as one without a driver, or without one here.
func (t *T) Skipf(format string, args ...any) {
	t.record.skip(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// SkipNow ends the case as one without a driver.
func (t *T) SkipNow() { t.Skip("it gives no reason") }

// Skipped reports whether the case was skipped.
func (t *T) Skipped() bool {
	t.record.mu.Lock()
	defer t.record.mu.Unlock()
	return t.record.skipped != ""
}

// drive calls f and then the cleanups; a panic is a failure.
func (t *T) drive(f func(*T)) {
	ctx, cancel := context.WithCancel(t.ctx)
	t.ctx = ctx
	defer t.cleanUp()
	defer cancel()
	defer t.recoverPanic()
	f(t)
}

func (t *T) recoverPanic() {
	if fault := recover(); fault != nil {
		t.record.fail(fmt.Sprintf("panic: %v\n%s", fault, debug.Stack()))
	}
}

// cleanUp continues after a cleanup that panics or ends its goroutine.
func (t *T) cleanUp() {
	t.record.mu.Lock()
	cleanups := t.record.cleanups
	if len(cleanups) == 0 {
		t.record.mu.Unlock()
		return
	}
	last := cleanups[len(cleanups)-1]
	t.record.cleanups = cleanups[:len(cleanups)-1]
	t.record.mu.Unlock()
	defer t.cleanUp()
	defer t.recoverPanic()
	last()
}

// finish decides the outcome.
func (t *T) finish() report {
	t.record.mu.Lock()
	defer t.record.mu.Unlock()
	t.record.closed = true
	for _, line := range t.record.logs {
		t.TB.Log(line)
	}
	return report{failed: t.record.failed, failures: t.record.failures, skipped: t.record.skipped}
}

func (r *record) fail(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.failed = true
	if message = strings.TrimRight(message, "\n"); message != "" {
		r.failures = append(r.failures, message)
	}
}

func (r *record) log(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, strings.TrimRight(message, "\n"))
}

func (r *record) skip(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped = strings.TrimSpace(reason)
}

// adopt takes over the content of another record.
func (r *record) adopt(other *record) {
	other.mu.Lock()
	defer other.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.failed = r.failed || other.failed
	r.failures = append(r.failures, other.failures...)
	r.logs = append(r.logs, other.logs...)
	if r.skipped == "" {
		r.skipped = other.skipped
	}
}

// where names the line of the driver that reports, or nothing for an assertion of testify, which names the line itself.
func where() string {
	callers := make([]uintptr, 16)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, "github.com/stretchr/testify/") {
			return ""
		}
		if !strings.Contains(frame.Function, "/pkg/goldentest.(*T).") && !strings.Contains(frame.Function, "/pkg/goldentest.where") {
			return fmt.Sprintf("%s:%d: ", filepath.Base(frame.File), frame.Line)
		}
		if !more {
			return ""
		}
	}
}
