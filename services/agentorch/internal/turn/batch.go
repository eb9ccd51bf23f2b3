package turn

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// rowEvery is how often the row of a run at work is brought up to date, beside changes that lists must show at once.
const rowEvery = time.Second

// driver is one step of an actor. It folds events as they are decided, and appends them all at the end.
type driver struct {
	*actor
	ctx context.Context //nolint:containedctx // a driver lives as long as one step
	s   *run.State
	now time.Time

	entries []journal.Entry
	took    []string
	row     bool // lists must show what changed
	intents bool // an effect is about to begin
	arrived []string
	acts    int // decisions of the agent
	release []release
	// finished is the end of the run, where this step brings it.
	finished *agentv1.RunFinished
}

// emit adds an event and folds it.
func (d *driver) emit(e *agentv1.Event) error { return d.emitBy("system", e) }

func (d *driver) emitBy(who string, e *agentv1.Event) error {
	seq := d.s.Seq + 1
	e.Journal, e.Seq, e.Epoch = d.s.Name, seq, d.head.Epoch
	e.Time, e.WorkingStart, e.Critical = timestamppb.New(d.now), durationpb.New(d.s.Working), run.Critical(e)
	if e.GetActor() == "" {
		e.Actor = who
	}
	d.name(e)
	entry := journal.Entry{Event: e, Same: d.same(e)}
	d.note(e)
	if err := d.s.Apply(e); err != nil {
		return fmt.Errorf("turn: %s: %w", d.s.Name, err)
	}
	d.entries = append(d.entries, entry)
	return nil
}

// name gives an id to the thing that an event begins, and to messages that have none.
func (d *driver) name(e *agentv1.Event) {
	if e.GetId() == "" {
		e.Id = eventID(e)
	}
	var messages []*modelv1.ChatMessage
	switch k := e.GetKind().(type) {
	case *agentv1.Event_MessageAdded:
		messages = []*modelv1.ChatMessage{k.MessageAdded.GetContent()}
	case *agentv1.Event_HistoryChanged:
		messages = k.HistoryChanged.GetContent().GetMessages()
	case *agentv1.Event_ModelOutcome:
		for _, c := range k.ModelOutcome.GetContent().GetOutput().GetChoices() {
			messages = append(messages, c.GetMessage())
		}
	}
	for i, m := range messages {
		if m != nil && m.GetId() == "" {
			m.Id = d.messageID(e.GetSeq(), i)
		}
	}
}

// messageID is the id of a message that the run makes itself: unique beyond the run, and the same when the step is taken again.
func (d *driver) messageID(seq int64, i int) string {
	if i == 0 {
		return fmt.Sprintf("%s.%d", d.s.ID(), seq)
	}
	return fmt.Sprintf("%s.%d.%d", d.s.ID(), seq, i)
}

// eventID is the number of the event, and that of its intent for an outcome.
func eventID(e *agentv1.Event) string {
	if intent := intentOf(e); intent != 0 {
		return fmt.Sprint(intent)
	}
	return fmt.Sprint(e.GetSeq())
}

// same finds the event that holds the content already, so that it is stored once.
func (d *driver) same(e *agentv1.Event) int64 {
	answer := chat.FirstMessage(d.s.Answer())
	switch k := e.GetKind().(type) {
	case *agentv1.Event_MessageAdded:
		if answer != nil && k.MessageAdded.GetContent() == answer {
			return d.s.Answered()
		}
	case *agentv1.Event_ToolIntent:
		for _, call := range answer.GetToolCalls() {
			if k.ToolIntent.GetContent() == call {
				return d.s.Answered()
			}
		}
	}
	return 0
}

// note watches for what an append is to bring about beside the events.
func (d *driver) note(e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_RunFinished:
		d.finished, d.row = k.RunFinished, true
	case *agentv1.Event_RunStateChanged, *agentv1.Event_SandboxOutcome, *agentv1.Event_SandboxRemoved, *agentv1.Event_LimitHit,
		*agentv1.Event_ErrorRaised, *agentv1.Event_StepBegan, *agentv1.Event_ScoreOutcome:
		d.row = true
	case *agentv1.Event_ModelIntent, *agentv1.Event_ToolIntent, *agentv1.Event_SandboxIntent, *agentv1.Event_ExecIntent, *agentv1.Event_WorkerIntent:
		// What begins may take long, and lists should not lack meanwhile what was answered before it.
		d.intents, d.row = true, d.row || d.s.Answers > 0
	}
}

// commit appends what was decided.
func (d *driver) commit() error {
	if len(d.entries) == 0 {
		return nil
	}
	a := journal.Append{Head: d.head, Entries: d.entries, Took: d.took}
	if d.row || d.now.Sub(d.rowed) >= rowEvery {
		row, err := d.s.Row()
		if err != nil {
			return err
		}
		a.Row, d.rowed = &row, d.now
	}
	lapses, _ := d.engine.fence.look(d.now, d.engine.cfg.TTL)
	if err := d.engine.deps.Store.Append(d.ctx, a); err != nil {
		if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE) {
			d.tooLarge = runError(err)
		}
		return err
	}
	d.lapses, d.seen = lapses, d.engine.uncounted.until(d.now)
	d.head.Seq = d.s.Seq
	if d.intents {
		failpoint.Hit("agentorch/after-intent")
	}
	for _, r := range d.release {
		d.engine.released.add(r)
	}
	d.logEnd()
	return nil
}

// logEnd logs the end of a run of its own. Of an evaluation's run the evaluation says what matters.
func (d *driver) logEnd() {
	if d.finished == nil || d.s.Spec().GetAttribution().GetEval() != "" {
		return
	}
	log := d.engine.deps.Logger.With("run", d.s.Name, "state", strings.ToLower(strings.TrimPrefix(d.finished.GetState().String(), "RUN_STATE_")), "turns", d.s.Turns,
		"took", d.finished.GetTotalTime().AsDuration())
	if err := d.finished.GetError(); err != nil {
		log.Warn("a run has ended", "reason", err.GetReason())
		return
	}
	log.Info("a run has ended")
}
