package run

import (
	"fmt"
	"slices"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Waits calls yield with every wait of the run, and with the waiting part: an intent, an agent, or the run if both are
// nil.
func (s *State) Waits(yield func(wait *agentv1.RunWait, i *Intent, f *Frame) bool) {
	if s.Pause != nil && !yield(s.Pause, nil, nil) {
		return
	}
	for _, f := range s.frames {
		if f.Wait != nil && !yield(f.Wait, nil, f) {
			return
		}
	}
	for _, i := range s.Open {
		if i.Wait != nil && !yield(i.Wait, i, nil) {
			return
		}
	}
}

// allWaits returns every wait once: calls of one stage share theirs.
func (s *State) allWaits() (all []*agentv1.RunWait) {
	s.Waits(func(wait *agentv1.RunWait, _ *Intent, _ *Frame) bool {
		if !slices.Contains(all, wait) {
			all = append(all, wait)
		}
		return true
	})
	return all
}

// Subjects returns the named subjects of a run's waits.
func Subjects(waits []*agentv1.RunWait) (subjects []string) {
	for _, wait := range waits {
		if subject := wait.GetSubject(); subject != "" && !slices.Contains(subjects, subject) {
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

// Subjects returns the subjects whose arrival the run waits for.
func (s *State) Subjects() []string { return Subjects(s.allWaits()) }

func (s *State) waitChanged(f *Frame, c *agentv1.WaitChanged) error {
	switch {
	case c.GetRun():
		s.Pause = c.GetWait()
	case c.GetIntent() == 0:
		f.Wait = c.GetWait()
	default:
		waiting := s.OpenIntent(c.GetIntent())
		if waiting == nil {
			return fmt.Errorf("a wait of %d, which is no open intent", c.GetIntent())
		}
		for _, i := range s.Open { // Calls of one stage are one request.
			if i == waiting || journal.Intent(i.Event) && journal.RequestID(i.Event) == journal.RequestID(waiting.Event) {
				i.Wait = c.GetWait()
			}
		}
	}
	return nil
}

// settle applies the consequences of an event for the run as a whole. Effects that are being stopped wait for nothing
// else.
func (s *State) settle(e *agentv1.Event) {
	if s.Finished || s.Cutting() {
		s.Pause = nil
	}
	for _, f := range s.frames {
		if s.Finished || s.Cutting() || f.Ending() {
			f.Wait = nil
		}
	}
	for _, i := range s.Open {
		if s.Cuts(i) {
			i.Wait = nil
		}
	}
	phase, wait := s.phase, s.waitsFor()
	if wait != nil {
		phase = agentv1.RunState_RUN_STATE_WAITING
	}
	if phase == s.Phase && wait == s.Wait {
		return
	}
	if s.Uncounted() {
		s.leftAlone(timeOf(e.GetTime()).Sub(s.waiting) - (s.away - s.awayAtWait))
	}
	s.Phase, s.Wait, s.waiting, s.awayAtWait = phase, wait, timeOf(e.GetTime()), s.away
}

// waitsFor returns the oldest wait of the run; nil while an effect is open or any part could progress.
func (s *State) waitsFor() (oldest *agentv1.RunWait) {
	if s.Pause != nil {
		return s.Pause
	}
	for _, i := range s.Open {
		if i.Wait == nil && journal.Intent(i.Event) {
			return nil
		}
	}
	for _, f := range s.frames {
		if f.Wait == nil && !f.Busy() {
			return nil
		}
	}
	s.Waits(func(wait *agentv1.RunWait, _ *Intent, _ *Frame) bool {
		if oldest == nil || wait.GetSince().AsTime().Before(oldest.GetSince().AsTime()) {
			oldest = wait
		}
		return true
	})
	return oldest
}

// retryTime returns the earliest time at which one of the waits is to be looked at again; zero if there is none.
func (s *State) retryTime() (first time.Time) {
	s.Waits(func(wait *agentv1.RunWait, _ *Intent, _ *Frame) bool {
		if at := timeOf(wait.GetRetryTime()); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
		return true
	})
	return first
}
