package cli

import (
	"context"
	"errors"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
)

const (
	// lookAgain is how often a server that waits for others looks whether they are done.
	lookAgain = 200 * time.Millisecond
	// lastWords is how long clients may take to ask for the results of work that is done.
	lastWords = 10 * time.Second
)

// work runs a command that brings work. When the server is in this process, it serves on afterwards until the work of
// others is done, or an interrupt ends it.
func (a *app) work(ctx context.Context, f func(ctx context.Context, s *session) error) error {
	s, err := a.begin(ctx)
	if err != nil {
		return err
	}
	err = f(ctx, s)
	if s.here != nil && !s.leave {
		s.serveOn(ctx)
	}
	if closeErr := s.close(ctx); err == nil {
		err = closeErr
	}
	return err
}

// begin connects a command that brings work, unless an interrupt comes before it is connected.
func (a *app) begin(ctx context.Context) (*session, error) {
	starting, stop := a.untilInterrupt(ctx)
	s, err := a.connect(starting, true)
	stop()
	if interrupted(starting) {
		if err == nil {
			err = s.close(ctx)
		}
		return nil, errors.Join(errInterrupted, err)
	}
	return s, err
}

// serveOn returns when nothing is at work any more and other clients have gone, or at an interrupt. A server that
// starts later continues what is unfinished then.
func (s *session) serveOn(ctx context.Context) {
	ctx, stop := s.app.untilInterrupt(ctx)
	defer stop()
	told, busy := 0, time.Now()
	for announced := true; ; {
		n, err := s.atWork(ctx)
		if err != nil {
			return
		}
		if n > 0 {
			busy = time.Now()
		}
		const own = 1
		quiet := n == 0 && (s.here.Clients() <= own || time.Since(busy) > lastWords)
		switch {
		case quiet && !announced:
			return
		case quiet == announced: // A client that comes now waits until this server is gone; one that came before is seen by the next look.
			announced = !quiet
			if s.here.Announce(announced) != nil {
				return
			}
			continue
		case n > 0 && n != told:
			s.app.note("serving on at %s: %d of others at work; interrupt to stop (%s continues them)", s.address, n, s.app.next("serve"))
			told = n
		}
		if retry.Sleep(ctx, lookAgain) != nil {
			return
		}
	}
}

// atWork counts evaluations, and runs outside of them, that have not ended in the project.
func (s *session) atWork(ctx context.Context) (int, error) {
	evals, err := s.evals.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: s.app.parent(), States: activeEvals})
	if err != nil {
		return 0, err
	}
	runs, err := s.runs.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: s.app.parent(), States: activeRuns})
	if err != nil {
		return 0, err
	}
	n := len(evals.GetEvals())
	for _, r := range runs.GetRuns() {
		if r.GetSpec().GetAttribution().GetEval() == "" {
			n++
		}
	}
	return n, nil
}
