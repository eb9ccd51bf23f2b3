// Package transcript writes the events of a run for people: who said what, which tools ran with what result, and how
// the run was judged and ended.
package transcript

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
)

// Options set how a transcript looks.
type Options struct {
	// Color marks headings for a terminal.
	Color bool
	// Full writes long texts as they are; else each is cut to its first and last lines.
	Full bool
	// Events writes a line for events that people rarely ask for: states, spans, reviews, waits.
	Events bool
}

// Writer writes one run. It is not for concurrent use.
type Writer struct {
	out     io.Writer
	options Options
	// shown are ids of messages that were written: a conversation may name a message again that an outcome gave.
	shown map[string]bool
	// calls are the names of commands that run outside tool calls, by the seq of their intents.
	calls map[int64]string
}

// New makes a writer of one run. Errors of out are out's to remember.
func New(out io.Writer, options Options) *Writer {
	return &Writer{out: out, options: options, shown: map[string]bool{}, calls: map[int64]string{}}
}

// NoteText describes an open effect in one line.
func NoteText(n *effectv1.Note) string {
	line := printable.Line(n.GetMessage())
	if n.GetRetryTime() == nil {
		return line
	}
	if left := time.Until(n.GetRetryTime().AsTime()); left > 0 {
		return fmt.Sprintf("retrying in %.0f s: %s", math.Ceil(left.Truncate(10*time.Millisecond).Seconds()), line)
	}
	return "retrying: " + line
}

// Event writes one event. Kinds without information for a reader write nothing.
func (w *Writer) Event(e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_RunCreated:
		w.created(e, k.RunCreated)
	case *agentv1.Event_MessageAdded:
		w.message(k.MessageAdded.GetContent(), "")
	case *agentv1.Event_HistoryChanged:
		w.history(e, k.HistoryChanged)
	case *agentv1.Event_Compacted:
		c := k.Compacted
		w.heading("compaction", enum.Word(c.GetType()))
		w.body(fmt.Sprintf("about %d tokens before, %d after", c.GetTokensBefore(), c.GetTokensAfter()))
	case *agentv1.Event_ModelOutcome:
		w.answer(k.ModelOutcome)
	case *agentv1.Event_ToolOutcome:
		w.result(k.ToolOutcome)
	case *agentv1.Event_ExecIntent:
		w.calls[e.GetSeq()] = k.ExecIntent.GetPurpose()
	case *agentv1.Event_ExecOutcome:
		w.exec(k.ExecOutcome)
	case *agentv1.Event_SandboxOutcome:
		w.sandbox(k.SandboxOutcome)
	case *agentv1.Event_ScoreOutcome:
		w.score(k.ScoreOutcome)
	case *agentv1.Event_LimitHit:
		w.heading("limit", enum.Word(k.LimitHit.GetLimit().GetType()))
		w.body(k.LimitHit.GetLimit().GetMessage())
	case *agentv1.Event_ErrorRaised:
		w.heading("error", k.ErrorRaised.GetError().GetReason())
		w.body(k.ErrorRaised.GetError().GetMessage())
	case *agentv1.Event_Info:
		w.heading("note", k.Info.GetCode())
		w.body(unquoted(k.Info.GetContent().GetDataJson()))
	case *agentv1.Event_CommandReceived:
		w.heading("operator", enum.Word(k.CommandReceived.GetType()), e.GetActor())
		w.body(k.CommandReceived.GetReason())
		for _, m := range k.CommandReceived.GetContent().GetMessages() {
			w.message(m, "")
		}
	case *agentv1.Event_RunFinished:
		w.finished(k.RunFinished)
	default:
		w.other(e)
	}
}

func (w *Writer) created(e *agentv1.Event, c *agentv1.RunCreated) {
	spec := c.GetSpec()
	var steps []string
	for _, s := range spec.GetSteps() {
		steps = append(steps, s.GetName())
	}
	w.heading("run", e.GetJournal(), e.GetTime().AsTime().Local().Format(time.DateTime))
	facts := []string{"model " + orDash(spec.GetModel().GetModel()), "steps " + strings.Join(steps, " → ")}
	if a := spec.GetAttribution(); a.GetEval() != "" {
		facts = append(facts, fmt.Sprintf("sample %s epoch %d of %s", a.GetSample(), a.GetEpoch(), a.GetEval()))
	}
	w.body(strings.Join(facts, "\n"))
	for _, m := range c.GetContent().GetInput() {
		w.message(m, "")
	}
}

// history writes messages that took the place of others. What an agent tidies up after a submission is no news.
func (w *Writer) history(e *agentv1.Event, h *agentv1.HistoryChanged) {
	if h.GetReason() == "submit" {
		w.other(e)
		return
	}
	w.heading("history", h.GetReason())
	for _, m := range h.GetContent().GetMessages() {
		delete(w.shown, m.GetId())
		w.message(m, "changed")
	}
}

// message writes a message once. note follows the speaker's name.
func (w *Writer) message(m *modelv1.ChatMessage, note string) {
	if m == nil || m.GetId() != "" && w.shown[m.GetId()] {
		return
	}
	w.shown[m.GetId()] = true
	who := chat.RoleName(m.GetRole())
	if m.GetRole() == modelv1.Role_ROLE_TOOL {
		who = "tool " + m.GetFunction()
	}
	w.heading(who, note)
	w.body(contentText(m.GetContent()))
	if err := m.GetError(); err != nil {
		w.body("error (" + chat.ToolErrorName(err.GetType()) + "): " + err.GetMessage())
	}
	for _, call := range m.GetToolCalls() {
		w.call(call)
	}
}

func (w *Writer) answer(o *agentv1.ModelOutcome) {
	w.retries(o.GetFailedAttempts(), o.GetTiming())
	if o.GetInterrupted() {
		w.heading("model call interrupted", strings.TrimPrefix(lost(o.GetTiming()), ", "))
		return
	}
	if err := o.GetError(); err != nil {
		w.heading("model call failed", err.GetReason()+lost(o.GetTiming()))
		w.body(err.GetMessage())
		return
	}
	note := fmt.Sprintf("%d tokens in, %d out", chat.InputTokens(o.GetUsage()), o.GetUsage().GetOutputTokens())
	if t := o.GetTiming().GetWorking(); t != nil {
		note += ", " + seconds(t.AsDuration())
	}
	if reason := o.GetStopReason(); reason != modelv1.StopReason_STOP_REASON_STOP && reason != modelv1.StopReason_STOP_REASON_TOOL_CALLS {
		note += ", stopped by " + chat.StopReasonName(reason)
	}
	note += answeredBy(o) + lost(o.GetTiming())
	m := chat.FirstMessage(o.GetContent().GetOutput())
	if m == nil {
		w.heading("assistant", note)
		return
	}
	w.message(m, note)
}

// answeredBy names the model that answered in place of the requested one, and the options that it was not sent. What is
// not sent to the requested model is told once, before the run.
func answeredBy(o *agentv1.ModelOutcome) string {
	by := o.GetContent().GetOutput().GetFallback().GetFallbackModel()
	if by == "" {
		return ""
	}
	by = ", answered by " + by
	if unsent := o.GetUnsentOptions(); len(unsent) > 0 {
		by += " (not sent: " + strings.Join(unsent, ", ") + ")"
	}
	return by
}

// lost reports how often a call was lost with the process that made it. Only the provider knows the cost of those
// calls.
func lost(t *effectv1.Timing) string {
	if !t.GetReissued() {
		return ""
	}
	return fmt.Sprintf(", made again %d× after its process ended (tokens of those: unknown)", max(1, t.GetReissues()))
}

// retries describes the attempts that failed before an answer, and why the last of them did. Of very many only the latest
// are in failed; t has the number and the wait of all.
func (w *Writer) retries(failed []*modelv1.FailedAttempt, t *effectv1.Timing) {
	if len(failed) == 0 {
		return
	}
	var waited time.Duration
	for _, f := range failed {
		waited += f.GetWait().AsDuration()
	}
	w.heading("model call tried again", fmt.Sprintf("failed attempts: %d, waited %s", max(len(failed), int(t.GetAttempts())-1), seconds(max(waited, t.GetRetryWait().AsDuration()))))
	w.body(failed[len(failed)-1].GetError())
}

func (w *Writer) result(o *agentv1.ToolOutcome) {
	r := o.GetContent().GetResult()
	if o.GetMessageId() != "" {
		if w.shown[o.GetMessageId()] {
			return
		}
		w.shown[o.GetMessageId()] = true
	}
	note := ""
	if t := o.GetTiming().GetWorking(); t != nil {
		note = seconds(t.AsDuration())
	}
	if cut := o.GetTruncation(); cut != nil {
		note += fmt.Sprintf(", cut from %d to %d bytes", cut.GetRawBytes(), cut.GetLimitBytes())
	}
	w.heading("tool "+o.GetFunction(), note)
	w.body(contentText(r.GetContent()))
	if err := r.GetError(); err != nil {
		w.body("error (" + chat.ToolErrorName(err.GetType()) + "): " + err.GetMessage())
	}
	if f := o.GetFailure(); f != nil {
		w.body("failure (" + f.GetReason() + "): " + f.GetMessage())
	}
	for _, n := range r.GetNotes() {
		w.body("note: " + n)
	}
}

func (w *Writer) exec(o *agentv1.ExecOutcome) {
	w.heading("command for " + orDash(w.calls[o.GetIntent()]))
	if err := o.GetError(); err != nil {
		w.body(err.GetReason() + ": " + err.GetMessage())
		return
	}
	r := o.GetContent()
	end := fmt.Sprintf("exit %d after %s", r.GetExitCode(), seconds(r.GetDuration().AsDuration()))
	switch {
	case r.GetTimedOut():
		end += ", killed by its time-out"
	case r.GetOom():
		end += ", out of memory"
	case r.GetCancelled():
		end += ", cancelled"
	}
	w.body(end)
	w.body(string(r.GetStdout()))
	w.body(string(r.GetStderr()))
}

func (w *Writer) sandbox(o *agentv1.SandboxOutcome) {
	if err := o.GetError(); err != nil {
		w.heading("no sandbox", o.GetEnvironment())
		w.body(err.GetReason() + ": " + err.GetMessage())
		return
	}
	w.heading("sandbox "+o.GetEnvironment(), o.GetSandbox().GetName())
	if weaker := o.GetSandbox().GetIsolation().GetWeaker(); len(weaker) > 0 {
		w.body("weaker here: " + strings.Join(weaker, "; "))
	}
	if o.GetSandbox().GetIsolation().GetUnisolated() {
		w.body("NOT isolated: a part was missing and allowed to be")
	}
}

func (w *Writer) score(o *agentv1.ScoreOutcome) {
	if err := o.GetError(); err != nil {
		w.heading("scorer "+o.GetName()+" failed", err.GetReason())
		w.body(err.GetMessage())
		return
	}
	w.heading("score "+o.GetName(), ScoreText(o.GetValue()))
	s := o.GetContent().GetScore()
	if s.Answer != nil {
		w.body(labelled("answer", s.GetAnswer()))
	}
	w.body(s.GetExplanation())
}

func (w *Writer) finished(f *agentv1.RunFinished) {
	note := fmt.Sprintf("after %s, working %s", seconds(f.GetTotalTime().AsDuration()), seconds(f.GetWorkingTime().AsDuration()))
	w.heading(RunStateText(f.GetState()), note)
	if l := f.GetLimit(); l != nil {
		w.body("ended by the " + enum.Word(l.GetType()) + " limit: " + l.GetMessage())
	}
	if err := f.GetError(); err != nil {
		w.body(err.GetReason() + ": " + err.GetMessage())
	}
}

// other writes a line for what is no part of the conversation.
func (w *Writer) other(e *agentv1.Event) {
	if !w.options.Events {
		return
	}
	name := "unknown kind"
	r := e.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("kind")); f != nil {
		name = string(f.Name())
	}
	w.heading(name, fmt.Sprintf("event %d", e.GetSeq()))
}
