package evalexport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
)

// makeSample reads a finished slot's run. If the run cannot be read, the sample has only the facts that the
// evaluation's journal holds.
func (l *Log) makeSample(ctx context.Context, slot *eval.Slot) (*evallog.Sample, error) {
	sample, finished := l.samples.At(slot.Sample), slot.Finished
	record, err := l.readRun(ctx, slot.Run)
	damaged := errors.Is(err, journal.ErrUnreadable)
	if damaged {
		record, err = l.readRun(ctx, "")
	}
	if err != nil {
		return nil, fmt.Errorf("sample %s, epoch %d: %w", sample.GetId(), slot.Epoch, err)
	}
	view, uuid := record.state.View(true), resource.LastID(slot.Run)
	if slot.Run == "" || damaged { // Only its input is known.
		view.Spec, view.Messages = &agentv1.RunSpec{Model: l.ledger.state.Eval.GetSpec().GetModels()[slot.Model]}, sample.GetInput()
	}
	if slot.Run == "" {
		uuid = fmt.Sprintf("%s-%d.%d.%d", resource.LastID(l.ledger.state.Eval.GetName()), slot.Sample+1, slot.Epoch, slot.Model+1)
	}
	w := &writer{condenser: &evallog.Condenser{}, media: media{ctx: ctx, blobs: l.exporter.deps.Blobs, project: l.project}, sample: sample, warnings: l.ledger.state.Eval.GetWarnings()}
	events := record.transcript.Events()
	s := &evallog.Sample{
		ID: idOf(sample), Epoch: slot.Epoch, Input: w.condenser.Media(w.input(sample)), Choices: sample.GetChoices(), Target: targetOf(sample.GetTarget()),
		Sandbox: sandboxOf(view.GetSpec().GetSandboxes()[defaultEnvironment], record.driver), Files: slices.Sorted(maps.Keys(sample.GetFiles())), Setup: sample.GetSetup(),
		Messages: w.condenser.Media(w.messages(view.GetMessages())), MessageCount: len(view.GetMessages()), Output: w.output(view.GetOutput(), view.GetSpec().GetModel().GetModel()),
		Metadata: raw(sample.GetMetadataJson()), Store: storeOf(view.GetStore()),
		ModelUsage: usages(finished.GetUsage()), RoleUsage: usages(finished.GetRoleUsage()), Fallbacks: record.fallbacks,
		Started: moment(view.GetStartTime()), Completed: moment(view.GetEndTime()),
		TotalTime: finished.GetTotalTime().AsDuration(), WorkTime: finished.GetWorkingTime().AsDuration(),
		UUID: uuid, Turns: int(view.GetTurns()), Bounds: boundsOf(record.state), Condensed: w.condenser,
	}
	scores := finished.GetContent().GetScores()
	if len(scores) == len(view.GetScores()) || len(scores) == 0 {
		scores = view.GetScores() // The evaluation has long texts cut, and no scores that are too large.
	}
	for _, named := range scores {
		s.Scores = append(s.Scores, scoreOf(named.GetName(), scorewire.ToScore(named.GetScore())))
	}
	if reached := finished.GetLimit(); reached != nil {
		s.Limit = &evallog.Limit{Type: enum.Word(reached.GetType()), Limit: reached.GetLimit(), Reason: reached.GetMessage()}
	}
	switch {
	case damaged:
		s.Error = errorOf(&agentv1.RunError{
			Reason:  rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_INTERNAL),
			Message: "the journal of " + slot.Run + " cannot be read: its messages and events are missing here",
		}, "", within(slot.Run))
	case finished.GetError() != nil:
		s.Error = errorOf(finished.GetError(), "", record.transcript.Traceback)
	case finished.GetState() == agentv1.RunState_RUN_STATE_CANCELLED:
		s.Error = &evallog.Error{Message: "the sample was cancelled"}
	}
	for _, earlier := range l.ledger.retried(slot) {
		run := fmt.Sprintf("%s, sample %s, epoch %d", earlier.GetRun(), sample.GetId(), slot.Epoch)
		s.Retries = append(s.Retries, *errorOf(earlier.GetError(), "", within(run)))
	}
	if !l.warned && len(events) > 0 {
		events, l.warned = l.withWarnings(events), true
	}
	for _, e := range events {
		if event := w.event(e); event != nil {
			s.Events = append(s.Events, event)
		}
	}
	return s, w.media.err
}

// withWarnings adds the evaluation's warnings to a transcript, as log lines behind its first event. Logs have no other
// place for facts about all samples, so the first sample with a transcript gets them.
func (l *Log) withWarnings(events []*transcript.Event) []*transcript.Event {
	e := l.ledger.state.Eval
	var lines []*transcript.Event
	for i, w := range e.GetWarnings() {
		if w.GetModel() != l.header.Eval.Model && slices.ContainsFunc(e.GetSpec().GetModels(), func(ref *agentv1.ModelRef) bool { return ref.GetModel() == w.GetModel() }) {
			continue // Of another log of the evaluation.
		}
		line := jsonwrite.Marshal(map[string]any{"name": "evalfleet", "level": "warning", "message": w.GetMessage(), "created": moment(e.GetCreateTime()).UnixMilli()})
		lines = append(lines, &transcript.Event{
			Event: "logger", UUID: fmt.Sprintf("%s-warning-%d", resource.LastID(e.GetName()), i+1), SpanID: events[0].SpanID, Timestamp: events[0].Timestamp, Message: line,
		})
	}
	return slices.Insert(slices.Clone(events), 1, lines...)
}

// record is the content of a run's journal.
type record struct {
	state      *run.State
	transcript *transcript.Builder
	// driver is the driver of the run's default sandbox; empty if it had none.
	driver string
	// fallbacks are the models that answered in place of others, in the order of their first answers.
	fallbacks []evallog.Fallback
}

// answered counts an answer of a model in place of another one.
func (r *record) answered(f *modelv1.ModelFallback) {
	if f == nil {
		return
	}
	at := slices.IndexFunc(r.fallbacks, func(known evallog.Fallback) bool {
		return known.Model == f.GetModel() && known.By == f.GetFallbackModel()
	})
	if at < 0 {
		at = len(r.fallbacks)
		r.fallbacks = append(r.fallbacks, evallog.Fallback{Model: f.GetModel(), By: f.GetFallbackModel()})
	}
	r.fallbacks[at].Count += int(max(f.GetCount(), 1))
}

// readRun reads a run's journal once. Without a name the record is empty.
func (l *Log) readRun(ctx context.Context, name string) (*record, error) {
	r := &record{state: run.New(name, nil), transcript: transcript.NewBuilder()}
	if name == "" {
		return r, nil
	}
	journals := l.exporter.deps.Journals
	head, err := journals.Open(ctx, name)
	if err != nil {
		return nil, journal.Gone(err, name)
	}
	for event, err := range journal.All(ctx, journals, head.Ref, 0) {
		if err == nil {
			err = r.state.Apply(event)
		}
		if err == nil {
			err = r.transcript.Add(event)
		}
		if err != nil {
			return nil, journal.Gone(err, name)
		}
		if event.GetScoreOutcome() != nil {
			r.transcript.Used(r.state.Usage, r.state.RoleUsage)
		}
		r.answered(event.GetModelOutcome().GetContent().GetOutput().GetFallback())
		if driver := driverOf(event); driver != "" {
			r.driver = driver
		}
	}
	return r, nil
}

// driverOf returns the driver that created a run's default sandbox, if the event names it.
func driverOf(e *agentv1.Event) string {
	made := e.GetSandboxOutcome()
	if made.GetEnvironment() != defaultEnvironment {
		return ""
	}
	return made.GetSandbox().GetSpec().GetDriver()
}

// driver returns the driver of the evaluation's sandboxes if its specification leaves the choice to the server: that of
// a sample of the log's model that got a sandbox. It is empty until there is one.
func (l *Log) driver(ctx context.Context, model int) (string, error) {
	const few = 3 // A sample may fail before it has its sandbox.
	spec := l.ledger.state.Eval.GetSpec().GetSandboxes()[defaultEnvironment]
	if spec == nil || spec.GetDriver() != "" {
		return "", nil
	}
	journals, looked := l.exporter.deps.Journals, 0
	for i := range l.ledger.state.Slots {
		name := l.ledger.state.Slots[i].Run
		if name == "" || l.ledger.state.Slots[i].Model != model {
			continue
		}
		if looked++; looked > few {
			break
		}
		head, err := journals.Open(ctx, name)
		if err != nil {
			return "", journal.Gone(err, name)
		}
		for event, err := range journal.All(ctx, journals, head.Ref, 0) {
			if errors.Is(err, journal.ErrUnreadable) {
				break
			}
			if err != nil {
				return "", journal.Gone(err, name)
			}
			if driver := driverOf(event); driver != "" {
				return driver, nil
			}
			if event.GetStepBegan() != nil {
				break // Sandboxes are made before the first step.
			}
		}
	}
	return "", nil
}

func idOf(sample *agentv1.Sample) evallog.ID {
	return evallog.ID{Text: sample.GetId(), Integer: sample.GetIntegerId()}
}

// input is the sample's input as it was given: a text, or messages.
func (w *writer) input(sample *agentv1.Sample) json.RawMessage {
	if sample.GetInputText() && len(sample.GetInput()) == 1 {
		return jsonText(chat.Text(sample.GetInput()[0]))
	}
	return w.messages(sample.GetInput())
}

func targetOf(t *agentv1.Target) json.RawMessage {
	switch {
	case t.GetList() || len(t.GetValues()) > 1:
		return jsonwrite.Marshal(append([]string{}, t.GetValues()...))
	case len(t.GetValues()) == 1:
		return jsonText(t.GetValues()[0])
	}
	return jsonText("")
}

func scoreOf(name string, s score.Score) evallog.Score {
	log := evallog.Score{Name: name, Value: s.Value.AppendLog(nil), Answer: s.Answer, Explanation: s.Explanation, Reason: s.Reason}
	if s.Metadata != nil {
		log.Metadata = jsonwrite.Marshal(s.Metadata)
	}
	return log
}

func storeOf(store map[string]string) []evallog.Member {
	var all []evallog.Member
	for _, key := range slices.Sorted(maps.Keys(store)) {
		if value := raw(store[key]); value != nil {
			all = append(all, evallog.Member{Name: key, Value: value})
		}
	}
	return all
}

// boundsOf are the bounds that a run ended under, and how far it got with its tokens.
func boundsOf(s *run.State) evallog.Bounds {
	bounds := s.Limits.Bounds()
	if bounds == nil {
		return evallog.Bounds{}
	}
	b := evallog.Bounds{
		Tokens: bounds.Tokens, Messages: wide(bounds.GetMessages(), bounds.Messages != nil), TimeSeconds: wholeSeconds(bounds.GetTime()),
	}
	if b.Tokens != nil {
		b.TokenType, b.TokensUsed = bounds.GetTokenFormula(), new(s.Limits.Metered(s.Total))
	}
	return b
}

// messages are messages as a list.
func (w *writer) messages(all []*modelv1.ChatMessage) json.RawMessage {
	var b strings.Builder
	b.WriteByte('[')
	for i, m := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(chat.MessageJSON(w.media.inline(m)))
	}
	b.WriteByte(']')
	return json.RawMessage(b.String())
}

// output is a model's output, or an empty one if there is none.
func (w *writer) output(o *modelv1.ModelOutput, model string) json.RawMessage {
	if o == nil {
		o = &modelv1.ModelOutput{Model: model}
	}
	return chat.OutputJSON(w.media.inlineOutput(o))
}
