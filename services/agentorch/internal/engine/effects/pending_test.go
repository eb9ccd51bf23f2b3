package effects

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is an effect whose owner answers in turn; it writes down what it is asked.
type scripted struct {
	answers []error
	asked   []string
}

func (s *scripted) Do(context.Context, *Pending) ([]*agentv1.Event, error) {
	s.asked = append(s.asked, "do")
	err := s.answers[0]
	s.answers = s.answers[1:]
	return []*agentv1.Event{run.NewEvent(&agentv1.ExecOutcome{})}, err
}

func (s *scripted) Cancel(context.Context, ...int64) error {
	s.asked = append(s.asked, "cancel")
	return nil
}

func (s *scripted) Failed(err error) []*agentv1.Event {
	return []*agentv1.Event{run.NewEvent(&agentv1.ExecOutcome{Error: run.ErrorOf(err)})}
}

func (s *scripted) Services() []string { return []string{peers.Sandboxd} }

func (s *scripted) Release() *Release { return nil }

// owned is a run that this replica owns, or not.
type owned struct {
	not     bool
	lost    int64
	answers []Answer
}

func (o *owned) MayAsk(ctx context.Context) bool { return !o.not && ctx.Err() == nil }

func (o *owned) Lost(epoch int64) { o.lost = epoch }

func (o *owned) Deliver(_ *Pending, a Answer) { o.answers = append(o.answers, a) }

func (o *owned) Queued(*agentv1.RunWait) {}

// begin asks for an effect in a bubble, and returns when the asking has ended.
func begin(t *testing.T, e Effect, r Run, stopping bool) time.Duration {
	t.Helper()
	var working sync.WaitGroup
	outages := &peers.Outages{}
	c := NewCaller(t.Context(), working.Go, Deps{Notes: &progress.Board{}, Outages: outages, Logger: slog.New(slog.DiscardHandler)})
	started := time.Now()
	c.Begin("r/1", e, r, &effectv1.Attribution{Run: "projects/p/runs/r", Eval: "e"}, stopping)
	working.Wait()
	outages.Probe(func(string) bool { return true }, time.Now())
	assert.Empty(t, outages.Waits("e"), "nothing is open any more")
	return time.Since(started)
}

func TestAnOwnerThatIsAwayIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := rpcerr.ServiceUnavailable("sandboxd", 0, "sandboxd does not answer")
		e, r := &scripted{answers: []error{away, away, nil}}, &owned{}
		assert.GreaterOrEqual(t, begin(t, e, r, false), firstPause, "two pauses, each shortened by up to half")
		assert.Equal(t, []string{"do", "do", "do"}, e.asked)
		require.Len(t, r.answers, 1)
		assert.True(t, r.answers[0].Over)
		assert.Nil(t, r.answers[0].Outcomes[0].GetExecOutcome().GetError())
	})
}

// An effect that could not begin is a wait of the run, and no outcome; a permanent failure is an outcome, and no wait.
func TestAnErrorIsAWaitOrAnOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &owned{}
		begin(t, &scripted{answers: []error{rpcerr.WorkerUnavailable("tool", "x", time.Second, "no worker")}}, r, false)
		begin(t, &scripted{answers: []error{rpcerr.Internal("a fault")}}, r, false)
		begin(t, &scripted{answers: []error{errors.New("no error of ours")}}, r, false)
		require.Len(t, r.answers, 3)
		assert.Equal(t, waits.Worker, r.answers[0].Wait.GetReason())
		assert.Empty(t, r.answers[0].Outcomes)
		for _, a := range r.answers[1:] {
			assert.Nil(t, a.Wait)
			assert.NotNil(t, a.Outcomes[0].GetExecOutcome().GetError())
		}
	})
}

// An effect of a run that stops is cancelled before it is asked for, and what it came to is an outcome, not a wait.
func TestAStoppedEffectIsCancelledFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, r := &scripted{answers: []error{rpcerr.WorkerUnavailable("tool", "x", time.Second, "no worker")}}, &owned{}
		begin(t, e, r, true)
		assert.Equal(t, []string{"cancel", "do"}, e.asked)
		assert.Nil(t, r.answers[0].Wait)
		assert.NotEmpty(t, r.answers[0].Outcomes)
	})
}

func TestNothingIsAskedForARunOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, r := &scripted{}, &owned{not: true}
		begin(t, e, r, true)
		assert.Empty(t, e.asked)
		assert.Empty(t, r.answers)
	})
}

// The owner of effects knows of a newer owner of the run before this replica does: nothing is asked again, and no
// outcome is journaled.
func TestARunThatAnotherOwnsIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, r := &scripted{answers: []error{rpcerr.NotOwner("r/1", 7, "the run has another owner")}}, &owned{}
		begin(t, e, r, false)
		assert.Equal(t, []string{"do"}, e.asked)
		assert.Empty(t, r.answers)
		assert.EqualValues(t, 7, r.lost)
	})
}
