package progress_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
)

// at is a state with that many samples of forty done.
func at(done, failed int32) *agentv1.WatchEvalResponse {
	return &agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Progress{Progress: &agentv1.Eval{Progress: &agentv1.EvalProgress{
		Total: 40, Succeeded: done, Failed: failed, Running: 3, TotalTokens: 12_345, TotalCost: new(0.0123),
	}}}}
}

func finished(values ...*agentv1.ScoreValue) *agentv1.WatchEvalResponse {
	content := &agentv1.SampleFinishedContent{}
	for _, v := range values {
		content.Scores = append(content.Scores, &agentv1.NamedScore{Name: "match", Score: &agentv1.Score{Value: v}})
	}
	event := &agentv1.Event{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{Content: content}}}
	return &agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Event{Event: event}}
}

func text(v string) *agentv1.ScoreValue {
	return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: v}}
}

func TestLinesComeByTenthsAndAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := progress.NewLines(&out)
		s := progress.NewState(at(0, 0).GetProgress(), time.Now())
		show := func(r *agentv1.WatchEvalResponse) {
			s.Observe(r)
			l.Show(s)
		}
		show(at(0, 0))
		show(at(0, 0))
		show(at(1, 0))
		show(finished(text("C"), text("I"), text("C"), text("what?")))
		show(at(3, 1))
		time.Sleep(65 * time.Second)
		show(at(3, 1))
		show(at(4, 1))
		time.Sleep(9 * time.Second)
		show(at(4, 1))
		time.Sleep(time.Second)
		show(at(4, 1))
		l.Close()
		assert.Equal(t, ""+
			"0/40 done · 3 running · 12.3k tokens · $0.0123 · 0:00\n"+
			"4/40 done · 3 running · 1 failed · 12.3k tokens · $0.0123 · 0:00 · match 0.667 so far\n"+
			"4/40 done · 3 running · 1 failed · 12.3k tokens · $0.0123 · 1:05 · match 0.667 so far · no change for 1:05\n"+
			"5/40 done · 3 running · 1 failed · 12.3k tokens · $0.0123 · 1:15 · match 0.667 so far\n", out.String())
	})
}

func TestLinesSayThatNothingChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := progress.NewLines(&out)
		s := progress.NewState(at(0, 0).GetProgress(), time.Now())
		for range 300 {
			l.Show(s)
			time.Sleep(time.Second)
		}
		var said []string
		for line := range strings.Lines(out.String()) {
			require.True(t, strings.HasPrefix(line, "0/40 done · 3 running · 12.3k tokens · $0.0123 · "), line)
			_, still, _ := strings.Cut(line, "no change for ")
			said = append(said, strings.TrimSpace(still))
		}
		assert.Equal(t, []string{"", "0:10", "0:30", "1:10", "2:30", "3:50"}, said)

		out.Reset()
		r := at(0, 0)
		r.GetProgress().GetProgress().TotalTokens = 20_000
		s.Observe(r)
		l.Show(s)
		assert.Equal(t, "0/40 done · 3 running · 20.0k tokens · $0.0123 · 5:00\n", out.String(), "tokens are a change too")

		out.Reset()
		time.Sleep(time.Minute)
		s.Observe(at(40, 0))
		for range 300 {
			l.Show(s)
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, strings.Count(out.String(), "\n"), "nothing is awaited any more")
	})
}

func TestCancelledSamplesAreNotDone(t *testing.T) {
	t.Parallel()
	assert.EqualValues(t, 6, progress.Done(&agentv1.EvalProgress{Total: 12, Pending: 3, Succeeded: 5, Failed: 1, Cancelled: 3}))
}

func TestLiveDrawsOverItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		width := 30
		l := progress.NewLive(&out, func() (int, int) { return width, 24 }, true)
		s := progress.NewState(at(0, 0).GetProgress(), time.Now())
		s.Observe(at(10, 10))
		l.Show(s)
		first := out.String()
		assert.Equal(t, "\r\x1b[2K\x1b[32m━━━━━\x1b[31m━━━━━\x1b[0m──────────  50 %\n"+
			"\r\x1b[2K\x1b[2m20/40 done · 3 running · 10 …\x1b[0m\n"+
			"\r\x1b[2K\x1b[2m12.3k tokens · $0.0123 · 0:00\x1b[0m\n", first)
		out.Reset()
		l.Show(s)
		l.Show(s)
		assert.Empty(t, out.String(), "too soon to draw again")
		time.Sleep(time.Second)
		l.Show(s)
		second := strings.Replace(first, "0:00", "0:01", 1)
		assert.Equal(t, "\x1b[3A"+second, out.String())
		out.Reset()
		l.Show(s)
		l.Close()
		assert.Equal(t, "\x1b[3A"+second, out.String(), "the last state is drawn in any case")
		out.Reset()
		l.Close()
		time.Sleep(time.Second)
		l.Show(s)
		assert.Equal(t, strings.Replace(first, "0:00", "0:02", 1), out.String(), "after Close nothing is drawn over")
	})
}

// noted is the state with notes of open effects.
func noted(notes ...*agentv1.RunNote) *agentv1.WatchEvalResponse {
	r := at(0, 0)
	r.Notes = notes
	return r
}

func waiting(sample string, epoch int32, in time.Duration) *agentv1.RunNote {
	return &agentv1.RunNote{Sample: sample, Epoch: epoch, Note: &effectv1.Note{Message: "openai answered 429: slow down", RetryTime: timestamppb.New(time.Now().Add(in))}}
}

func TestOpenEffectsAreShownWhileTheyAreOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := progress.NewLive(&out, func() (int, int) { return 80, 24 }, true)
		s := progress.NewState(at(0, 0).GetProgress(), time.Now())
		dug := &agentv1.RunNote{Run: "projects/default/runs/r1", Note: &effectv1.Note{Message: "half \x1b[2J way"}}
		s.Observe(noted(waiting("a", 1, 12*time.Second), dug, waiting("b", 2, time.Second), waiting("c", 1, time.Second), waiting("d", 1, time.Second)))
		l.Show(s)
		lines := strings.Split(out.String(), "\n")
		assert.Equal(t, []string{
			"\r\x1b[2K\x1b[2ma: retrying in 12 s: openai answered 429: slow down\x1b[0m",
			"\r\x1b[2K\x1b[2mr1: half ·[2J way\x1b[0m",
			"\r\x1b[2K\x1b[2mb, epoch 2: retrying in 1 s: openai answered 429: slow down · and 2 more\x1b[0m",
		}, lines[3:6])

		time.Sleep(13 * time.Second)
		out.Reset()
		l.Show(s)
		assert.Contains(t, out.String(), "a: retrying: openai answered 429", "the time is over")

		out.Reset()
		time.Sleep(time.Second)
		s.Observe(at(1, 0))
		l.Show(s)
		assert.True(t, strings.HasPrefix(out.String(), "\x1b[6A"), "%q", out.String())
		assert.True(t, strings.HasSuffix(out.String(), "\n\x1b[J"), "what is not known any more is taken away: %q", out.String())
	})
}

func TestLinesTellOfTheLatestOpenEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := progress.NewLines(&out)
		s := progress.NewState(at(0, 0).GetProgress(), time.Now())
		l.Show(s)
		s.Observe(noted(waiting("a", 1, time.Minute), waiting("b", 1, time.Minute)))
		l.Show(s)
		time.Sleep(10 * time.Second)
		l.Show(s)
		assert.Equal(t, ""+
			"0/40 done · 3 running · 12.3k tokens · $0.0123 · 0:00\n"+
			"0/40 done · 3 running · 12.3k tokens · $0.0123 · 0:10 · no change for 0:10 · a: retrying in 50 s: openai answered 429: slow down · and 1 more\n", out.String())
	})
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]int64{"0": 0, "999": 999, "1.0k": 1000, "999.9k": 999_949, "1.0M": 999_950, "12.3M": 12_345_678} {
		assert.Equal(t, want, progress.Count(n))
	}
	for want, d := range map[string]float64{"$0.00": 0, "$0.0500": 0.05, "$1.50": 1.5} {
		assert.Equal(t, want, progress.Dollars(d))
	}
}

func TestWaitsAreToldWithTheirReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		r := at(0, 0)
		p := r.GetProgress().GetProgress()
		p.Waiting, p.Waits = 3, []*agentv1.EvalWait{{Reason: agentv1.WaitReason_WAIT_REASON_SERVICE, Message: "sandboxd does not\x1b[2J answer", Since: timestamppb.New(time.Now()), Samples: 3}}
		progress.NewLines(&out).Show(progress.NewState(r.GetProgress(), time.Now()))
		assert.Contains(t, out.String(), "0/40 done · 3 running · 3 waiting since "+time.Now().Local().Format(time.TimeOnly)+": sandboxd does not")
		assert.NotContains(t, out.String(), "\x1b", "what others wrote does not steer the terminal")
	})
}

// atWork is a running sample.
func atWork(id string, began time.Time) *agentv1.EvalSample {
	return &agentv1.EvalSample{Id: id, Epoch: 1, StartTime: timestamppb.New(began), Turns: 2, Usage: &modelv1.ModelUsage{TotalTokens: 1234}, Activity: "model openai/gpt-4o"}
}

func TestSamplesAtWorkAreListedInABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		rows := 24
		l := progress.NewLive(&out, func() (int, int) { return 100, rows }, true)
		s := progress.NewState(at(0, 0).GetProgress(), time.Now())
		r := at(1, 0)
		r.GetProgress().GetProgress().Running = 30
		for i := range 20 {
			r.Running = append(r.Running, atWork(fmt.Sprint("s", i), time.Now()))
		}
		r.Running[0].Retries, r.Running[0].Note = 3, &effectv1.Note{Message: "openai answered 429", RetryTime: timestamppb.New(time.Now().Add(12 * time.Second))}
		r.Running[1].Epoch, r.Running[1].Wait = 2, &agentv1.RunWait{Reason: agentv1.WaitReason_WAIT_REASON_WORKER, Message: "no worker serves\x1b[2J tool weather"}
		time.Sleep(time.Second)
		s.Observe(r)
		l.Show(s)
		lines := strings.Split(out.String(), "\n")
		require.Len(t, lines, 3+8+1+1)
		assert.Equal(t, []string{
			"\r\x1b[2K\x1b[2ms0          · 0:01 · 2 turns · 1.2k tokens · 3 retries · model openai/gpt-4o: retrying in 11 s: op…\x1b[0m",
			"\r\x1b[2K\x1b[2ms1, epoch 2 · 0:01 · 2 turns · 1.2k tokens · waits for worker: no worker serves·[2J tool weather\x1b[0m",
			"\r\x1b[2K\x1b[2ms2          · 0:01 · 2 turns · 1.2k tokens · model openai/gpt-4o\x1b[0m",
		}, lines[3:6])
		assert.Contains(t, lines[11], "and 22 more at work")

		out.Reset()
		rows = 7
		time.Sleep(time.Second)
		l.Show(s)
		assert.Equal(t, 6, strings.Count(out.String(), "\n"), "the view is lower than its terminal")
	})
}

// The means of scores never run ahead of the number of samples that are done.
func TestScoresAreShownWithTheSamplesThatTheyAreOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := progress.NewLines(&out)
		s := progress.NewState(at(0, 0).GetProgress(), time.Now().Add(-time.Minute))
		s.Observe(finished(text("C")))
		l.Show(s)
		assert.Equal(t, "0/40 done · 3 running · 12.3k tokens · $0.0123 · 1:00\n", out.String(), "the clock began before")
		out.Reset()
		s.Observe(at(4, 0))
		l.Show(s)
		assert.Contains(t, out.String(), "4/40 done")
		assert.Contains(t, out.String(), "match 1.000 so far")
	})
}

func TestLiveWithoutColor(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := progress.NewLive(&out, func() (int, int) { return 60, 24 }, false)
	s := progress.NewState(at(0, 0).GetProgress(), time.Now())
	s.Observe(at(10, 10))
	l.Show(s)
	assert.Contains(t, out.String(), "20/40 done")
	assert.NotRegexp(t, "\\x1b\\[[0-9]*m", out.String())
}
