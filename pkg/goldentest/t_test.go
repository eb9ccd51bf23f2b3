package goldentest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest/known"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/pkg/goldentest/outcome"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// judge executes one driver on a case with the fields and returns the outcome.
func judge(t *testing.T, fields string, drive func(*T, Case)) outcome.Record {
	t.Helper()
	c := Case{ID: "case", Theme: "theme", File: "file"}
	decoder := json.NewDecoder(strings.NewReader(fields))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&c.Fields))
	e := execution{timeout: time.Minute, grace: time.Minute}
	return e.judge(t, c, nil, drive)
}

func TestWaysToFail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		drive  func(*T, Case)
		result outcome.Result
		detail string
	}{
		{"nothing said", func(*T, Case) {}, outcome.Passed, ""},
		{"log", func(t *T, _ Case) { t.Log("a"); t.Logf("b %d", 1) }, outcome.Passed, ""},
		{"error", func(t *T, _ Case) { t.Error("a", 1) }, outcome.Failed, "a 1"},
		{"errors are collected", func(t *T, _ Case) { t.Errorf("a"); t.Errorf("b") }, outcome.Failed, "b"},
		{"fail", func(t *T, _ Case) { t.Fail() }, outcome.Failed, ""},
		{"fail now", func(t *T, _ Case) { t.FailNow() }, outcome.Failed, ""},
		{"fatal", func(t *T, _ Case) { t.Cleanup(func() { t.Log("reached") }); t.Fatal("stop") }, outcome.Failed, "stop"},
		{"require", func(t *T, _ Case) { require.Equal(t, 1, 2, "stop"); t.Error("not reached") }, outcome.Failed, "stop"},
		{"assert", func(t *T, _ Case) { assert.Equal(t, 1, 2) }, outcome.Failed, "expected: 1"},
		{"panic", func(*T, Case) { panic("here") }, outcome.Failed, "panic: here"},
		{"panic names the line", func(*T, Case) { panic("here") }, outcome.Failed, "t_test.go:"},
		{"skip", func(t *T, _ Case) { t.Skip("why") }, outcome.NoDriver, ""},
		{"skip now", func(t *T, _ Case) { t.SkipNow() }, outcome.NoDriver, ""},
		{"a failure outweighs skip", func(t *T, _ Case) { t.Error("a"); t.Skipf("why") }, outcome.Failed, "a"},
		{"a failing cleanup", func(t *T, _ Case) { t.Cleanup(func() { require.Fail(t, "late") }) }, outcome.Failed, "late"},
		{"a cleanup that panics", func(t *T, _ Case) { t.Cleanup(func() { panic("late") }) }, outcome.Failed, "late"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			record := judge(t, `{}`, test.drive)
			assert.Equal(t, test.result, record.Result, record.Detail)
			assert.Contains(t, record.Detail, test.detail)
			assert.NotContains(t, record.Detail, "not reached")
			assert.Equal(t, "theme file case", record.Theme+" "+record.File+" "+record.ID)
		})
	}
}

func TestFailuresNameTheDriversLine(t *testing.T) {
	t.Parallel()
	record := judge(t, `{}`, func(t *T, _ Case) { t.Equal(1, 2) })
	assert.True(t, strings.HasPrefix(record.Detail, "t_test.go:"), record.Detail)
}

func TestCleanupsRunLastFirstWithTheContextEnded(t *testing.T) {
	t.Parallel()
	var order []string
	record := judge(t, `{}`, func(t *T, _ Case) {
		t.Cleanup(func() { order = append(order, "first") })
		t.Cleanup(func() { t.Cleanup(func() { order = append(order, "from a cleanup") }); panic("goes on") })
		t.Cleanup(func() {
			if t.Context().Err() != nil {
				order = append(order, "last")
			}
		})
		assert.NoError(t, t.Context().Err())
		t.FailNow()
	})
	assert.Equal(t, outcome.Failed, record.Result)
	assert.Equal(t, []string{"last", "from a cleanup", "first"}, order)
}

func TestATimeoutEndsTheContext(t *testing.T) {
	t.Parallel()
	cleaned := false
	e := execution{timeout: time.Millisecond, grace: time.Minute}
	record := e.judge(t, Case{}, nil, func(t *T, _ Case) {
		t.Cleanup(func() { cleaned = true })
		<-t.Context().Done()
	})
	assert.Equal(t, outcome.Failed, record.Result)
	assert.Equal(t, "did not end within 1ms", record.Detail)
	assert.True(t, cleaned)
}

func TestAnAbandonedCaseHasNoMoreEffect(t *testing.T) {
	t.Parallel()
	goOn, done := make(chan struct{}), make(chan struct{})
	e := execution{timeout: time.Millisecond, grace: time.Millisecond}
	record := e.judge(t, Case{}, nil, func(t *T, _ Case) {
		defer close(done)
		<-goOn
		t.Error("too late")
		t.Log("too late")
		t.TempDir()
		panic("not reached")
	})
	close(goOn)
	waittest.For(t, done, "the end of the case that was abandoned")
	assert.Equal(t, outcome.Failed, record.Result)
	assert.NotContains(t, record.Detail, "too late")
}

func TestAKnownDifferenceIsWeighedAgainstItsEntry(t *testing.T) {
	t.Parallel()
	e := execution{timeout: time.Minute, grace: time.Minute}
	fails, passes := func(t *T, _ Case) { t.Error("differs") }, func(*T, Case) {}
	skips := func(t *T, _ Case) { t.Skip("none") }
	never := false
	byRule := &known.Entry{Kind: known.Later, Reason: "r"}
	byID := &known.Entry{Kind: known.Design, Reason: "r", ID: "x", Source: "a.yaml, entry 1"}
	notRun := &known.Entry{Kind: known.Design, Reason: "r", ID: "x", Run: &never}
	for _, test := range []struct {
		name   string
		entry  *known.Entry
		drive  func(*T, Case)
		result outcome.Result
	}{
		{"rule, fails", byRule, fails, outcome.Known},
		{"rule, passes", byRule, passes, outcome.Passed},
		{"rule, no driver", byRule, skips, outcome.NoDriver},
		{"id, fails", byID, fails, outcome.Known},
		{"id, passes", byID, passes, outcome.Failed},
		{"id, no driver", byID, skips, outcome.NoDriver},
		{"not run", notRun, func(*T, Case) { panic("is run") }, outcome.Known},
	} {
		record := e.judge(t, Case{}, test.entry, test.drive)
		assert.Equal(t, test.result, record.Result, test.name)
	}
}

func TestEqualFollowsTheCase(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, fields string
		want, got    any
		passes       bool
	}{
		{"exact", `{}`, 1, 1.1, false},
		{"tolerance", `{"tolerance":0.2}`, 1, 1.1, true},
		{"relative tolerance", `{"relative_tolerance":0.2}`, 10, 11, true},
		{"relative tolerance exceeded", `{"relative_tolerance":0.01}`, 10, 11, false},
		{"lines in order", `{}`, "a\nb", "b\na", false},
		{"lines in any order", `{"compare":"lines in any order"}`, "a\nb", "b\na", true},
		{"contains", `{"compare":"contains","contains":["syntax error"]}`, "something else", "a syntax error", true},
		{"contains not", `{"compare":"contains","contains":["syntax error"]}`, "right", "right", false},
		{"never, and it does not", `{"compare":"never"}`, "defect", "right", true},
		{"never, and it does", `{"compare":"never"}`, "defect", "defect", false},
	} {
		record := judge(t, test.fields, func(t *T, _ Case) {
			assert.Equal(t, test.passes, t.Equal(test.want, test.got), "what Equal returns")
		})
		assert.Equal(t, test.passes, record.Result == outcome.Passed, "%s: %s", test.name, record.Detail)
		assert.NotContains(t, record.Detail, "what Equal returns")
	}
}

func TestMarkersBindThroughoutTheCase(t *testing.T) {
	t.Parallel()
	record := judge(t, `{}`, func(t *T, _ Case) {
		assert.True(t, t.Equal("<id1>", "A"))
		assert.True(t, t.Equal([]any{2, "<id1>"}, []any{2, "A"}, match.Tolerance(1)))
	})
	assert.Equal(t, outcome.Passed, record.Result, record.Detail)
	record = judge(t, `{}`, func(t *T, _ Case) { t.Equal("<id1>", "A"); t.Equal("<id1>", "B") })
	assert.Equal(t, outcome.Failed, record.Result)
}

func TestEqualMessagesResolvesThePool(t *testing.T) {
	t.Parallel()
	pool := map[string]any{"message_pool": map[string]any{"m1": map[string]any{"id": "m1", "role": "user"}}, "messages": []any{"m1"}}
	got := func(role string) any {
		return map[string]any{"messages": []any{map[string]any{"id": "x", "role": role}}}
	}
	assert.Equal(t, outcome.Passed, judge(t, `{}`, func(t *T, _ Case) { t.EqualMessages(pool, got("user")) }).Result)
	assert.Equal(t, outcome.Failed, judge(t, `{}`, func(t *T, _ Case) { t.EqualMessages(pool, got("tool")) }).Result)
	assert.Equal(t, outcome.Failed, judge(t, `{}`, func(t *T, _ Case) {
		t.EqualMessages(map[string]any{"message_pool": 1}, nil)
	}).Result)
}

func TestInABubbleTimeStandsStill(t *testing.T) {
	t.Parallel()
	var slept time.Duration
	reached, cleaned := false, false
	record := judge(t, `{}`, func(t *T, _ Case) {
		t.Bubble(func(t *T) {
			t.Cleanup(func() { cleaned = true })
			start := time.Now()
			select {
			case <-t.Context().Done():
			case <-time.After(24 * time.Hour):
			}
			slept = time.Since(start)
			t.Equal("<id1>", "A")
		})
		t.Equal("<id1>", "A")
		reached = true
	})
	assert.Equal(t, outcome.Passed, record.Result, record.Detail)
	assert.Equal(t, 24*time.Hour, slept)
	assert.True(t, reached)
	assert.True(t, cleaned)
}

func TestFailuresInABubbleAreTheCases(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		inside  func(*T)
		result  outcome.Result
		detail  string
		reached bool
	}{
		{"error", func(t *T) { t.Error("inside") }, outcome.Failed, "inside", true},
		{"fatal", func(t *T) { t.Fatal("inside") }, outcome.Failed, "inside", false},
		{"require", func(t *T) { require.Fail(t, "inside") }, outcome.Failed, "inside", false},
		{"panic", func(*T) { panic("inside") }, outcome.Failed, "inside", false},
		{"skip", func(t *T) { t.Skip("inside") }, outcome.NoDriver, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			reached := false
			record := judge(t, `{}`, func(t *T, _ Case) { t.Bubble(test.inside); reached = true })
			assert.Equal(t, test.result, record.Result, record.Detail)
			assert.Contains(t, record.Detail, test.detail)
			assert.Equal(t, test.reached, reached)
		})
	}
}

func TestTIsATestingTB(t *testing.T) {
	t.Parallel()
	record := judge(t, `{}`, func(t *T, _ Case) {
		use := func(tb testing.TB) {
			tb.Helper()
			assert.DirExists(tb, tb.TempDir())
			assert.Contains(tb, tb.Name(), "TestTIsATestingTB")
			assert.False(tb, tb.Failed())
			assert.False(tb, tb.Skipped())
			tb.Fatal("through the interface")
		}
		use(t)
	})
	assert.Equal(t, outcome.Failed, record.Result)
	assert.Contains(t, record.Detail, "through the interface")
}
