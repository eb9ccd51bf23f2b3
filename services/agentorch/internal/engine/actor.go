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

	mu      sync.Mutex
	mail    []mail
	driving bool
	clock   *time.Timer
	boxes   []string          // sandboxes whose leases are to be renewed
	awaited map[string]func() // by what the run waits for, where that has a name: what ends the wait
	eval    string            // the evaluation that it belongs to; empty for none
	parked  *agentv1.RunWait  // why the run is not driven, where its journal does not tell; nil when it is
	queued  *agentv1.RunWait  // that a model call of the run waits for its place; nil when none does
	resting bool              // its journal says that it waits, and nothing is under way
	stepped bool              // a step since then went well, and had nothing to append
	backoff retry.Backoff     // between steps in a row that failed

	// The rest belongs to the run loop, of which there is one at a time.

	head    journal.Head
	away    time.Duration             // how long nobody drove the run before; zero for no time that counts
	seen    time.Duration             // what the engine had of uncounted time when the run got its actor, or at its last append
	adopted agentv1.OwnerChangeReason // why the run changed hands; an event of each epoch says so
	state   *run.State
	pending map[string]*effects.Pending // by key
	reviews map[string]*review          // that have not been used, by the span of the agent
	// kept are results that are in the journal and that owners keep still.
	kept []*effects.Release
	// removing says that the run's sandboxes are to go.
	removing bool
	// lapses are those of the fence when the run was known to be this replica's: when it got its actor, or at the last
	// append.
	lapses int
	// rowed is when the row was written last.
	rowed time.Time
	// unread says that the inbox holds a command that this version does not know.
	unread bool
	// left says that the inbox holds a command that could not be taken yet.
	left bool
	// faults counts steps in a row that failed for reasons of our own.
	faults int
	// tooLarge is why the journal refused what the last step decided, since an event was too large; nil when it did
	// not.
	tooLarge *agentv1.RunError
	// again is when something that could not be done is to be tried again; zero for never.
	again time.Time
}

// mail is what a run loop has to handle.
type mail struct {
	// pending is the effect that it is the answer of; nil for clocks and commands.
	pending *effects.Pending
	answer  effects.Answer
	// inbox asks for a look at the inbox.
	inbox bool
	// arrived is a subject that the run may have waited for; empty for none.
	arrived string
	// fenced says that another replica owns the run. Epoch is that which an owner of effects has of it; 0 for none.
	fenced bool
	epoch  int64
}

// post hands mail to the actor and starts its run loop where none runs.
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

// take returns the mail that is there. Without any the run loop ends.
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

// runLoop handles mail until there is none.
func (a *actor) runLoop() {
	for taken := a.take(); taken != nil; taken = a.take() {
		// An append that has begun is not given up: it is either durable or it is not, and the step has to know.
		ctx := context.WithoutCancel(a.engine.life)
		if err := a.step(ctx, taken); err != nil {
			a.recover(ctx, err)
		}
	}
}

// evalName is the evaluation that the run belongs to; empty for none.
func (a *actor) evalName() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.eval
}

// await has the run look again when one of the subjects arrives for which it waits, and no longer for others. What came
// after since counts.
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
