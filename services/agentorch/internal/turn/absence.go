package turn

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// waitService is the reason of those whose effect's owner does not answer. It is no wait of a run: nothing is journaled, and the asking goes on.
const waitService = "service"

// The owners of effects.
const (
	modelgw  = "modelgw"
	toolexec = "toolexec"
	sandboxd = "sandboxd"
)

// absences are the owners that do not answer, and the flights that ask now. It may be used concurrently.
type absences struct {
	mu     sync.Mutex
	since  map[string]time.Time // by owner
	flying map[*flight]struct{}
}

// begin and end note the life of a flight.
func (a *absences) begin(f *flight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.flying == nil {
		a.flying = map[*flight]struct{}{}
	}
	a.flying[f] = struct{}{}
}

func (a *absences) end(f *flight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.flying, f)
}

// look asks of each owner whether it answers.
func (a *absences) look(away func(owner string) bool, now time.Time) {
	if away == nil {
		return
	}
	for _, owner := range []string{modelgw, toolexec, sandboxd} {
		gone := away(owner)
		a.mu.Lock()
		if _, known := a.since[owner]; gone && !known {
			if a.since == nil {
				a.since = map[string]time.Time{}
			}
			a.since[owner] = now
		} else if !gone {
			delete(a.since, owner)
		}
		a.mu.Unlock()
	}
}

// waits returns what the runs of an evaluation wait for that ask owners who do not answer.
func (a *absences) waits(eval string) []*agentv1.EvalWait {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*agentv1.EvalWait
	for _, owner := range slices.Sorted(maps.Keys(a.since)) {
		runs, since := map[string]bool{}, time.Time{}
		for f := range a.flying {
			if f.of.GetEval() == eval && slices.Contains(f.owners, owner) {
				runs[f.actor.head.Name] = true
				if since.IsZero() || f.wanted.Before(since) {
					since = f.wanted
				}
			}
		}
		if len(runs) == 0 {
			continue
		}
		if gone := a.since[owner]; gone.After(since) {
			since = gone
		}
		all = append(all, &agentv1.EvalWait{Reason: waitService, Message: owner + " does not answer", Since: timestamppb.New(since), Samples: int32(len(runs))})
	}
	return all
}

// Waits returns what runs of an evaluation wait for now that no journal tells: services and a store that do not answer, a later version, their place among the open model calls.
func (e *Engine) Waits(eval string) []*agentv1.EvalWait {
	return append(e.absences.waits(eval), e.parkedOf(eval)...)
}
