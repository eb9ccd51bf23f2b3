package turn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/failpoint"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/note"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// effect is what an owner is asked for, under one key. Its requests are made of the journal alone, so that a successor makes the same.
type effect interface {
	// do asks for it and returns the outcomes; what is there before the end it reports.
	do(ctx context.Context, f *flight) ([]*agentv1.Event, error)
	// stop tells the owner to stop it, or never to begin.
	stop(ctx context.Context) error
	// failed makes the outcomes of a call that failed.
	failed(err error) []*agentv1.Event
	// owners are the services without which there is no answer.
	owners() []string
}

// flight is the asking for one effect. It ends with mail that is over.
type flight struct {
	actor  *actor
	key    string
	effect effect
	ctx    context.Context //nolint:containedctx // the life of the asking
	cancel context.CancelFunc
	wanted time.Time
	of     *effectv1.Attribution
	owners []string
	head   journal.Head // of the run, as its owner knew it when the flight began
	lapses int          // of the fence, while the run was known to be this replica's
	ticket *ticket      // its place among the open model calls; nil for what needs none

	mu       sync.Mutex
	noted    map[int64]struct{} // intents with a note
	deaf     bool               // nothing is to be noted any more
	started  bool
	stopping bool
}

// waited is how long the flight waited for its place.
func (f *flight) waited(since time.Time) time.Duration { return since.Sub(f.wanted) }

// reconcile sees to it that every open intent has a flight, and that flights of a run that stops are stopped.
func (a *actor) reconcile() {
	s := a.state
	stopping := s.Cutting()
	if s.Phase == agentv1.RunState_RUN_STATE_WAITING && !stopping {
		return // what could not be done is asked for again when the wait is over
	}
	for _, i := range s.Open {
		key := keyOf(i)
		switch f := a.flights[key]; {
		case f == nil:
			a.launch(key, a.effectOf(i), stopping)
		case stopping:
			f.stop()
		}
	}
	if !a.removing {
		return
	}
	for environment, box := range s.Sandboxes {
		if key := "remove/" + environment; !box.Removed && a.flights[key] == nil {
			a.launch(key, &removal{engine: a.engine, environment: environment, name: box.Name}, false)
		}
	}
}

// keyOf is the key of an intent's request. The calls of a stage share one.
func keyOf(i *run.Intent) string {
	switch k := i.Event.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		return k.ModelIntent.GetRequestId()
	case *agentv1.Event_ToolIntent:
		return k.ToolIntent.GetRequestId()
	case *agentv1.Event_SandboxIntent:
		return k.SandboxIntent.GetRequestId()
	case *agentv1.Event_WorkerIntent:
		return k.WorkerIntent.GetRequestId()
	default:
		return i.Event.GetExecIntent().GetRequestId()
	}
}

// effectOf makes the effect of an open intent.
func (a *actor) effectOf(i *run.Intent) effect {
	switch k := i.Event.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		return a.modelCall(i.Seq(), k.ModelIntent)
	case *agentv1.Event_ToolIntent:
		return a.toolStage()
	case *agentv1.Event_SandboxIntent:
		return a.creation(i.Seq(), k.SandboxIntent)
	case *agentv1.Event_WorkerIntent:
		return a.workerCall(i.Seq(), k.WorkerIntent)
	default:
		return a.execution(i.Seq(), i.Event.GetExecIntent())
	}
}

// launch begins a flight. A model call waits for its place without a goroutine.
func (a *actor) launch(key string, e effect, stopping bool) {
	f := &flight{actor: a, key: key, effect: e, wanted: time.Now(), of: a.attribution("", "", 0), owners: e.owners(), head: a.head, lapses: a.lapses, stopping: stopping}
	f.ctx, f.cancel = context.WithCancel(a.engine.flights)
	a.flights[key] = f
	call, isModel := e.(*modelCall)
	if !isModel || stopping {
		f.start()
		return
	}
	f.ticket = a.engine.gate.ticket(call.account(), f.start)
	if !f.ticket.enter() {
		f.queued()
	}
}

// queued notes that the run waits for its place among the open model calls of an account.
func (f *flight) queued() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started || f.ctx.Err() != nil {
		return
	}
	f.actor.setQueued(&agentv1.RunWait{
		Reason: waitCapacity, Since: timestamppb.New(f.wanted),
		Message: fmt.Sprintf("the account of its model has %d calls open, as many as may be; it goes on when one of them ends", f.actor.engine.gate.limit),
	})
}

// start begins the asking, once.
func (f *flight) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started || f.ctx.Err() != nil {
		return
	}
	f.started = true
	f.actor.setQueued(nil)
	f.actor.engine.working.Go(f.run)
}

// stop has the effect stopped. What comes of it still arrives as an outcome.
func (f *flight) stop() {
	f.mu.Lock()
	if f.stopping {
		f.mu.Unlock()
		return
	}
	f.stopping = true
	started := f.started
	f.mu.Unlock()
	if started {
		f.actor.engine.working.Go(f.tell)
	} else {
		f.start() // it begins by telling the owner never to begin
	}
}

// abandon ends the asking; the effect goes on with its owner.
func (f *flight) abandon() {
	f.cancel()
	f.leave()
}

func (f *flight) leave() {
	if f.ticket != nil {
		f.ticket.leave()
	}
}

func (f *flight) isStopping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopping
}

// tell tells the owner to stop the effect, until it has heard.
func (f *flight) tell() {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := f.effect.stop(f.ctx)
		if err == nil || f.ctx.Err() != nil {
			return
		}
		if !rpcerr.Transient(err) {
			f.actor.engine.deps.Logger.Warn("cannot stop an effect", "key", f.key, "error", err)
			return
		}
		if retry.Sleep(f.ctx, pause) != nil {
			return
		}
	}
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

// run asks the owner until there is an answer.
func (f *flight) run() {
	defer f.cancel()
	defer f.leave()
	defer f.unnote()
	f.actor.engine.absences.begin(f)
	defer f.actor.engine.absences.end(f)
	if f.isStopping() && f.mayAsk() {
		f.tell()
	}
	for pause := firstPause; f.mayAsk(); pause = min(2*pause, maxPause) {
		outcomes, err := f.effect.do(f.ctx, f)
		switch {
		case f.ctx.Err() != nil:
			return // the asking has ended, and nothing is known of the effect
		case err == nil:
			f.actor.post(mail{flight: f, outcomes: outcomes, over: true})
			return
		case rpcerr.Transient(err) && !rpcerr.NotStarted(err): // Its owner is away.
			if retry.Sleep(f.ctx, pause) != nil {
				return
			}
			continue
		}
		m := mail{flight: f, over: true}
		if !f.isStopping() {
			m.wait = waitFor(err, time.Now())
			if m.wait == nil {
				m.wait = undecided(f.effect, err)
			}
		}
		if m.wait == nil || run.Repeatable(runError(err)) {
			f.actor.logFault(err)
			m.outcomes = f.effect.failed(err)
		}
		f.actor.post(m)
		return
	}
}

// report hands on outcomes before the end.
func (f *flight) report(outcomes ...*agentv1.Event) {
	f.actor.post(mail{flight: f, outcomes: outcomes})
}

// note tells those who watch what is known of an open intent; nil takes it back.
func (f *flight) note(intent int64, known *effectv1.Note) {
	key, notes := f.noteKey(intent), f.actor.engine.deps.Notes
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deaf {
		return
	}
	if known == nil {
		delete(f.noted, intent)
		notes.Clear(key)
		return
	}
	if f.noted == nil {
		f.noted = map[int64]struct{}{}
	}
	f.noted[intent] = struct{}{}
	notes.Post(key, &agentv1.RunNote{Run: f.of.GetRun(), Intent: intent, Sample: f.of.GetSample(), Epoch: f.of.GetEpoch(), Note: known})
}

func (f *flight) noteKey(intent int64) note.Key {
	return note.Key{Run: f.of.GetRun(), Eval: f.of.GetEval(), Intent: intent}
}

// unnote takes back what was noted of a flight's intents. Whoever still tells something of them, as a worker may whose call goes on, tells nobody.
func (f *flight) unnote() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = true
	for intent := range f.noted {
		f.actor.engine.deps.Notes.Clear(f.noteKey(intent))
	}
}

// receive takes mail of a flight: outcomes into the journal.
func (d *driver) receive(m mail) error {
	f := m.flight
	if f == nil || d.flights[f.key] != f {
		return nil // of a flight that was given up; whoever took over asks again
	}
	if m.over {
		delete(d.flights, f.key)
	}
	for _, e := range m.outcomes {
		if seq := intentOf(e); seq != 0 && d.s.OpenIntent(seq) == nil {
			continue // an answer that came again
		}
		failpoint.Hit("agentorch/after-result")
		if err := d.emit(e); err != nil {
			return err
		}
		if err := d.after(e); err != nil {
			return err
		}
	}
	if x, isExec := f.effect.(*execution); isExec && m.over && x.request != nil {
		d.release = append(d.release, release{key: x.request.GetRequestId(), sandbox: x.request.GetSandbox()})
	}
	if m.wait != nil && !d.s.Cutting() {
		if m.wait.GetSubject() != "" && d.engine.arrivals.since(d.s.Parent(), m.wait.GetSubject(), f.wanted) {
			m.wait.RetryAt = timestamppb.New(d.now) // It came between the answer and this wait.
		}
		return d.phase(agentv1.RunState_RUN_STATE_WAITING, m.wait)
	}
	return nil
}

// intentOf is the number of the intent that an outcome belongs to; 0 for other events.
func intentOf(e *agentv1.Event) int64 {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelOutcome:
		return k.ModelOutcome.GetIntent()
	case *agentv1.Event_ToolOutcome:
		return k.ToolOutcome.GetIntent()
	case *agentv1.Event_SandboxOutcome:
		return k.SandboxOutcome.GetIntent()
	case *agentv1.Event_ExecOutcome:
		return k.ExecOutcome.GetIntent()
	case *agentv1.Event_WorkerOutcome:
		return k.WorkerOutcome.GetIntent()
	case *agentv1.Event_ScoreOutcome:
		return k.ScoreOutcome.GetIntent()
	}
	return 0
}

// after does what follows from an outcome at once: bounds, and results that may be forgotten.
func (d *driver) after(e *agentv1.Event) error {
	s := d.s
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelOutcome:
		d.release = append(d.release, release{parent: s.Parent(), key: s.Key(k.ModelOutcome.GetIntent())})
		if k.ModelOutcome.GetError() == nil && !s.Stopping() && s.Scoring == nil {
			if reached := s.Limits.AfterGenerate(s.Use()); reached != nil {
				return d.hit(reached)
			}
		}
	case *agentv1.Event_WorkerOutcome:
		d.release = append(d.release, release{parent: s.Project(), key: s.Key(k.WorkerOutcome.GetIntent()), worker: true})
	case *agentv1.Event_ToolOutcome:
		if stage := s.Calls.Stage; stage.Ended() {
			r := release{parent: s.Parent(), key: stage.RequestID}
			for _, c := range stage.Calls {
				r.calls = append(r.calls, c.Call.GetId())
			}
			d.release = append(d.release, r)
		}
	}
	return nil
}
