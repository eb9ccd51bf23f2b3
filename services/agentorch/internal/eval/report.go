package eval

import (
	"log/slog"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
)

const (
	// loggedFailures bounds the failed samples of an evaluation that are logged one by one.
	loggedFailures = 20
	// maxLogged bounds a text in the log that the author of a task chose, in bytes.
	maxLogged = 200
)

// logBegin logs that an evaluation was made.
func (e *Engine) logBegin(s *State) {
	spec := s.Eval.GetSpec()
	var models []string
	for _, m := range spec.GetModels() {
		models = append(models, m.GetModel())
	}
	e.deps.Logger.Info("an evaluation begins", "eval", s.Eval.GetName(), "task", headtail.Cut(spec.GetTask(), maxLogged), "models", models, "samples", len(s.Slots))
}

// log writes the events that matter to the operator to the server's log: failed samples, and the end of the evaluation.
// A sample that succeeds has no line. Messages of errors are not logged, since they may quote a model's input.
func (d *loop) log(events []*agentv1.Event) {
	log := d.engine.deps.Logger.With("eval", d.head.Name)
	for _, e := range events {
		switch k := e.GetKind().(type) {
		case *agentv1.Event_SampleFinished:
			if k.SampleFinished.GetState() == agentv1.RunState_RUN_STATE_FAILED {
				d.logFailure(log, k.SampleFinished)
			}
		case *agentv1.Event_EvalStateChanged:
			d.logChange(log, k.EvalStateChanged)
		}
	}
}

func (d *loop) logFailure(log *slog.Logger, f *agentv1.SampleFinished) {
	switch d.failed++; {
	case d.failed <= loggedFailures:
		log.Warn("a sample failed", "sample", headtail.Cut(f.GetSample(), maxLogged), "epoch", f.GetEpoch(), "run", f.GetRun(), "reason", f.GetError().GetReason())
	case d.failed == loggedFailures+1:
		log.Warn("more samples fail; they are not logged one by one")
	}
}

func (d *loop) logChange(log *slog.Logger, c *agentv1.EvalStateChanged) {
	if !d.state.Ended() {
		log.Info("an evaluation goes on", "reason", "resumed", "samples", d.state.Eval.GetProgress().GetPending())
		return
	}
	e, p := d.state.Eval, d.state.Eval.GetProgress()
	log = log.With("state", enum.Word(c.GetState()), "samples", p.GetTotal(), "succeeded", p.GetSucceeded(), "failed", p.GetFailed(), "cancelled", p.GetCancelled(),
		"scores", len(e.GetResults().GetScores()), "tokens", p.GetTotalTokens())
	if e.GetStartTime() != nil {
		log = log.With("took", e.GetEndTime().AsTime().Sub(e.GetStartTime().AsTime())-e.GetPausedTime().AsDuration())
	}
	if c.GetState() == agentv1.EvalState_EVAL_STATE_FAILED {
		log.Warn("an evaluation has ended", "reason", c.GetError().GetReason())
		return
	}
	log.Info("an evaluation has ended")
}
