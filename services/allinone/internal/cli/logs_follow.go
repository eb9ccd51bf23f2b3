package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
	"github.com/evalfleet/evalfleet/services/allinone/internal/transcript"
)

// followEval writes a line for each sample that has ended, and for each that ends, until the evaluation has ended. It
// fails where the evaluation did not succeed.
func (s *session) followEval(ctx context.Context, name string, f logFlags) error {
	a := s.app
	e, err := s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name, Content: true})
	if err != nil {
		return err
	}
	if s.idle && !ended(e) {
		return fmt.Errorf("no server drives %s, so that nothing would come: %s continues it, or %s", short(name), a.next("eval resume %s", short(name)), a.next("serve"))
	}
	cursor, seen := "", samplesSeen{refs: e.GetSpec().GetModels(), models: map[string]string{}}
	for {
		err := resume(ctx, func(heard func()) error {
			stream, err := s.evals.WatchEval(ctx, &agentv1.WatchEvalRequest{Name: name, Cursor: cursor, Content: true})
			if err != nil {
				return err
			}
			return receiveAll(stream, &cursor, heard, func(r *agentv1.WatchEvalResponse) error {
				sample := seen.finished(r.GetEvent())
				switch {
				case sample == nil || f.failed && fine(sample) || f.epoch != 0 && f.epoch != sample.GetEpoch():
					return nil
				case a.json:
					return a.emit(sample)
				}
				line := sampleLine(sample)
				if len(seen.refs) > 1 {
					line += " · " + sample.GetModel()
				}
				a.print("%s", line)
				return nil
			})
		})
		if err != nil {
			return err
		}
		if e, err = s.eval(ctx, name); err != nil {
			return err
		}
		if ended(e) {
			break
		}
	}
	a.note("%s %s · %s", short(name), evalState(e), s.facts(e))
	if e.GetState() != agentv1.EvalState_EVAL_STATE_SUCCEEDED {
		return statusError{code: exitFailed}
	}
	return nil
}

// samplesSeen folds the events of an evaluation into its samples.
type samplesSeen struct {
	refs   []*agentv1.ModelRef
	models map[string]string // by run
}

// finished is the sample whose end an event reports; nil for other events.
func (s *samplesSeen) finished(e *agentv1.Event) *agentv1.EvalSample {
	if began := e.GetSampleAdmitted(); began != nil {
		s.models[began.GetRun()] = began.GetModel()
	}
	f := e.GetSampleFinished()
	if f == nil {
		return nil
	}
	model := s.models[f.GetRun()]
	if at := int(f.GetModelIndex()); f.GetRun() == "" && at < len(s.refs) {
		model = s.refs[at].GetModel()
	}
	sample := &agentv1.EvalSample{
		Id: f.GetSample(), Epoch: f.GetEpoch(), Model: model, Run: f.GetRun(), State: f.GetState(), Scores: f.GetContent().GetScores(),
		Limit: f.GetLimit(), Error: f.GetError(),
		TotalTime: f.GetTotalTime(), WorkingTime: f.GetWorkingTime(), SandboxFault: f.GetSandboxFault(), Turns: f.GetTurns(), Retries: f.GetRetries(),
	}
	for _, u := range f.GetUsage() {
		sample.Usage = chat.AddUsage(sample.Usage, u)
	}
	return sample
}

// sampleLine describes in one line how a sample ended.
func sampleLine(sample *agentv1.EvalSample) string {
	parts := []string{sample.GetId()}
	if sample.GetEpoch() > 1 {
		parts[0] += fmt.Sprintf(", epoch %d", sample.GetEpoch())
	}
	parts = append(parts, transcript.RunStateText(sample.GetState()))
	if scores := scoreTexts(sample); scores != "" {
		parts = append(parts, scores)
	}
	parts = append(parts, progress.Several(sample.GetTurns(), "turn", "turns"), progress.Count(sample.GetUsage().GetTotalTokens())+" tokens",
		sample.GetTotalTime().AsDuration().Round(10*time.Millisecond).String())
	if sample.GetRetries() > 0 {
		parts = append(parts, progress.Several(sample.GetRetries(), "retry", "retries"))
	}
	if note := noteOf(sample); note != "" {
		parts = append(parts, note)
	}
	return strings.Join(parts, " · ")
}
