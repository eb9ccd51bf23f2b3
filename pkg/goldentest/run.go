package goldentest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
	"github.com/evalfleet/evalfleet/pkg/goldentest/outcome"
)

// Option changes how Run executes cases.
type Option func(*execution)

// Timeout bounds one case; the default is 60 s. A case that takes longer fails, without affecting others: its context
// ends, and if the case does not end with it, it is abandoned.
func Timeout(limit time.Duration) Option { return func(e *execution) { e.timeout = limit } }

// Parallel executes the cases side by side, as many as the -parallel flag allows.
func Parallel() Option { return func(e *execution) { e.parallel = true } }

type execution struct {
	timeout  time.Duration
	grace    time.Duration
	parallel bool
}

// Run executes each case as a subtest of the test theme, and records its outcome under the case's own theme:
//
//   - passed;
//   - a known difference: it failed or was not to be run, and the list of known differences covers it. The subtest
//     passes and logs why;
//   - no driver: drive called Skip. The subtest is passed and logs so;
//   - failed: anything else, and also a case that passes although the list names its id.
//
// drive is called in a goroutine of its own and reports through its T.
func Run(t *testing.T, theme string, cases []Case, drive func(*T, Case), opts ...Option) {
	t.Helper()
	s, err := settings()
	if err != nil {
		t.Fatalf("recorded cases: %v", err)
	}
	e := execution{timeout: time.Minute, grace: 5 * time.Second}
	for _, opt := range opts {
		opt(&e)
	}
	t.Run(theme, func(t *testing.T) {
		if len(cases) == 0 {
			t.Log("the folder of cases holds none of this theme")
		}
		for _, c := range cases {
			t.Run(c.ID, func(t *testing.T) {
				if e.parallel {
					t.Parallel()
				}
				record := e.judge(t, c, s.known.Find(c), drive)
				if err := s.reports.Add(record); err != nil {
					t.Error(err)
				}
				announce(t, record)
			})
		}
	})
}

// judge executes the case, unless its entry excludes it, and compares the result with the entry.
func (e execution) judge(t *testing.T, c Case, entry *known.Entry, drive func(*T, Case)) outcome.Record {
	record := outcome.Record{Theme: c.Theme, File: c.File, ID: c.ID}
	if entry != nil && !entry.Runs() {
		record.Result, record.Kind, record.Reason = outcome.Known, entry.Kind, entry.Reason
		return record
	}
	r := e.execute(t, c, drive)
	switch {
	case !r.failed && r.skipped != "":
		record.Result, record.Reason = outcome.NoDriver, r.skipped
	case r.failed && entry != nil:
		record.Result, record.Kind, record.Reason = outcome.Known, entry.Kind, entry.Reason
		record.Detail = r.detail()
	case r.failed:
		record.Result, record.Detail = outcome.Failed, r.detail()
	case entry != nil && entry.Exact():
		record.Result, record.Kind, record.Reason = outcome.Failed, entry.Kind, entry.Reason
		record.Detail = "passes unexpectedly: take it off the known differences (" + entry.Source + ")"
	default:
		record.Result = outcome.Passed
	}
	return record
}

// execute calls drive under the timeout and returns its report.
func (e execution) execute(t *testing.T, c Case, drive func(*T, Case)) report {
	ctx, cancel := context.WithTimeout(t.Context(), e.timeout)
	defer cancel()
	caseT := newT(ctx, t, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		caseT.drive(func(t *T) { drive(t, c) })
	}()
	select {
	case <-done:
	case <-ctx.Done():
		caseT.record.fail(fmt.Sprintf("did not end within %s", e.timeout))
		grace := time.NewTimer(e.grace)
		defer grace.Stop()
		select {
		case <-done:
		case <-grace.C:
			caseT.record.fail("did not end with its context either; its goroutine is left behind")
		}
	}
	return caseT.finish()
}

func announce(t *testing.T, record outcome.Record) {
	switch record.Result {
	case outcome.Failed:
		t.Errorf("%s", record.Detail)
	case outcome.Known:
		t.Logf("known difference (%s): %s\n%s", record.Kind, record.Reason, record.Detail)
	case outcome.NoDriver:
		t.Logf("no driver: %s", record.Reason)
	case outcome.Passed:
	}
}

// report is the outcome that a case reported.
type report struct {
	failed   bool
	failures []string
	skipped  string
}

func (r report) detail() string { return strings.Join(r.failures, "\n") }
