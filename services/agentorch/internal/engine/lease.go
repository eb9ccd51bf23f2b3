package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// setBoxes notes the sandboxes that the run uses, waiting included.
func (a *actor) setBoxes(s *run.State) {
	var boxes []string
	for _, box := range s.Sandboxes {
		if !box.Removed && !s.Finished {
			boxes = append(boxes, box.Name)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.boxes = boxes
	if a.unlisted {
		a.unlisted = false
		a.engine.leases.renewNow() // The renewal at the start did not know them.
	}
}

// retryLeases is the number of beats between a failed renewal of leases and the next attempt.
const retryLeases = 5

// leases tracks when the leases of the runs' sandboxes are due: immediately at the start. It is safe for concurrent
// use.
type leases struct {
	mu      sync.Mutex
	due     time.Time
	busy    bool
	hurried bool
}

// take reports whether the leases are due. If it returns true, the caller must renew them and then call done.
func (l *leases) take(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy || now.Before(l.due) {
		return false
	}
	l.busy, l.hurried = true, false
	return true
}

func (l *leases) done(now time.Time, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.due = false, now.Add(next)
	if l.hurried {
		l.due = now
	}
}

// renewNow makes the next beat renew all leases.
func (l *leases) renewNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due, l.hurried = time.Time{}, true
}

// keepLeases renews the leases once, and sets when they are due again.
func (e *Engine) keepLeases(ctx context.Context) {
	next := e.cfg.RenewLeases
	if !e.renewLeases(ctx) {
		next = min(next, retryLeases*e.cfg.Beat)
	}
	e.leases.done(time.Now(), next)
}

// renewedAtOnce is how many leases RenewLeases takes.
const renewedAtOnce = 500

// renewLeases renews the leases of all runs' sandboxes, by project. It reports whether all calls were answered.
func (e *Engine) renewLeases(ctx context.Context) (all bool) {
	byProject := map[string][]string{}
	e.mu.Lock()
	actors := slices.Collect(maps.Values(e.actors))
	e.mu.Unlock()
	for _, a := range actors {
		a.mu.Lock()
		for _, box := range a.boxes {
			project, _, _ := strings.Cut(box, "/sandboxes/")
			byProject[project] = append(byProject[project], box)
		}
		a.mu.Unlock()
	}
	all = true
	for project, boxes := range byProject {
		for some := range slices.Chunk(boxes, renewedAtOnce) {
			answer, err := e.deps.Sandboxes.RenewLeases(ctx, &sandboxv1.RenewLeasesRequest{Parent: project, Sandboxes: some})
			if all = all && err == nil; err != nil && ctx.Err() == nil {
				e.deps.Logger.Warn("cannot renew leases of sandboxes", "project", project, "sandboxes", len(some), "error", err)
			}
			if missing := answer.GetMissing(); len(missing) > 0 {
				e.deps.Logger.Warn("sandboxes of runs are gone", "project", project, "missing", len(missing))
			}
		}
	}
	return all
}
