package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/effects"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// actor is a run that this replica owns.
type actor struct {
	engine *Engine

	mu       sync.Mutex
	mail     []mail
	driving  bool
	clock    *time.Timer
	boxes    []string          // sandboxes whose leases are to be renewed
	unlisted bool              // its row could not be read, so that boxes are unknown until its journal is
	awaited  map[string]func() // by the name of the subject that the run waits for: what ends the wait
	eval     string            // the evaluation that it belongs to; empty if there is none
	parked   *agentv1.RunWait  // why the run is not driven, if its journal does not record it; nil while it is
	queued   *agentv1.RunWait  // set while a model call of the run waits for its place; nil otherwise
	resting  bool              // its journal says that it waits, and no effect is open
	stepped  bool              // a step since then went well, and had nothing to append
	backoff  retry.Backoff     // between steps in a row that failed

	// The remaining fields belong to the run loop. At most one runs at a time.

	head    journal.Head
	away    time.Duration             // how long no replica drove the run before; zero for no time that counts
	seen    time.Duration             // the engine's uncounted time when the run got its actor, or at its last append
	adopted agentv1.OwnerChangeReason // why the run changed hands; the first event of an epoch records it
	state   *run.State
	pending map[string]*effects.Pending // by key
	reviews map[string]*review          // that have not been used, by [decide.Review.Key]
	// kept are journaled results that their owners still store.
	kept []*effects.Release
	// removing is set when the run's sandboxes are to be removed.
	removing bool
	// lapses is the fence's count of lapses when this replica last knew that it owns the run: when the run got its
	// actor, or at the last append.
	lapses int
	// rowed is when the row was written last.
	rowed time.Time
	// unread is set while the inbox holds a command of a kind that this version does not know.
	unread bool
	// left is set while the inbox holds a command that cannot be applied yet.
	left bool
	// faults counts steps in a row that failed for reasons of our own.
	faults int
	// tooLarge is the error if the journal refused the entries of the last step because an event was too large; nil
	// otherwise.
	tooLarge *agentv1.RunError
	// again is when a failed action is to be retried; zero means never.
	again time.Time
}

// mail is one item for the run loop to handle.
type mail struct {
	// pending is the effect that the answer belongs to; nil for clocks and commands.
	pending *effects.Pending
	answer  effects.Answer
	// inbox asks for a look at the inbox.
	inbox bool
	// arrived is a subject that the run may wait for; empty if there is none.
	arrived string
	// fenced is set when another replica owns the run. Epoch is the run's epoch as the owner of an effect reported it;
	// 0 if unknown.
	fenced bool
	epoch  int64
}

// post adds mail and starts the run loop unless one runs.
func (a *actor) post(m mail) {
	e := a.engine
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mail = append(a.mail, m)
	if a.driving {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	a.driving = true
	e.working.Go(a.runLoop)
}

// take removes and returns all mail. If it returns nil, the run loop must end.
func (a *actor) take() []mail {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.mail
	a.mail = nil
	if len(taken) == 0 || a.engine.life.Err() != nil {
		a.driving = false
		return nil
	}
	return taken
}

// runLoop handles mail until the mailbox is empty.
func (a *actor) runLoop() {
	for taken := a.take(); taken != nil; taken = a.take() {
		// An append in flight is not abandoned: the step has to know whether it is durable.
		ctx := context.WithoutCancel(a.engine.life)
		if err := a.step(ctx, taken); err != nil {
			a.recover(ctx, err)
		}
	}
}

// evalName is the evaluation that the run belongs to; empty if there is none.
func (a *actor) evalName() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.eval
}

// await makes the run look again when one of the subjects arrives, and drops the subjects of earlier calls. Arrivals
// after since count.
func (a *actor) await(project string, subjects []string, since time.Time) {
	var came []string
	a.mu.Lock()
	for subject, stop := range a.awaited {
		if !slices.Contains(subjects, subject) {
			stop()
			delete(a.awaited, subject)
		}
	}
	for _, subject := range subjects {
		if a.awaited[subject] != nil {
			continue
		}
		stop, arrived := a.engine.arrivals.Await(project, subject, since, func() { a.post(mail{arrived: subject}) })
		if a.awaited == nil {
			a.awaited = map[string]func(){}
		}
		if a.awaited[subject] = stop; arrived {
			came = append(came, subject)
		}
	}
	a.mu.Unlock()
	for _, subject := range came {
		a.post(mail{arrived: subject}) // It came before it could know who waits for it.
	}
}

func (a *actor) setQueued(wait *agentv1.RunWait) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queued = wait
}

func (a *actor) setClock(in time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clock == nil {
		a.clock = time.AfterFunc(max(0, in), func() { a.post(mail{inbox: true}) })
		return
	}
	a.clock.Reset(max(0, in))
}

func (a *actor) stopClock() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clock != nil {
		a.clock.Stop()
	}
}
