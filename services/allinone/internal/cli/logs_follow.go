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

// followEval writes a line for each sample that has ended, and for each that ends, until the evaluation has ended. It fails where the evaluation did not succeed.
func (s *session) followEval(ctx context.Context, name string, f logFlags) error {
	a := s.app
	e, err := s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name})
	if err != nil {
		return err
	}
	if s.idle && !ended(e) {
		return fmt.Errorf("no server drives %s, so that nothing would come: %s goes on with it, or %s", short(name), a.next("eval resume %s", short(name)), a.next("serve"))
	}
	cursor := ""
	for {
		err := again(ctx, func() error {
			stream, err := s.evals.WatchEval(ctx, &agentv1.WatchEvalRequest{Name: name, Cursor: cursor, Content: true})
			if err != nil {
				return err
			}
			return receiveAll(stream, &cursor, func(r *agentv1.WatchEvalResponse) error {
				sample := sampleOf(r.GetEvent().GetSampleFinished())
				switch {
				case sample == nil || f.failed && fine(sample) || f.epoch != 0 && f.epoch != sample.GetEpoch():
					return nil
				case a.json:
					return a.emit(sample)
				}
				a.print("%s", sampleLine(sample))
				return nil
			})
		})
		if err != nil {
			return err
		}
		if e, err = s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name}); err != nil {
			return err
		}
		if ended(e) {
			break
		}
	}
	a.note("%s %s · %s", short(name), evalState(e), facts(e))
	if e.GetState() != agentv1.EvalState_EVAL_STATE_SUCCEEDED {
		return statusError{code: exitFailed}
	}
	return nil
}

// sampleOf is a sample as its end says it; nil for none.
func sampleOf(f *agentv1.SampleFinished) *agentv1.EvalSample {
	if f == nil {
		return nil
	}
	sample := &agentv1.EvalSample{
		Id: f.GetSample(), Epoch: f.GetEpoch(), Run: f.GetRun(), State: f.GetState(), Scores: f.GetContent().GetScores(), Limit: f.GetLimit(), Error: f.GetError(),
		TotalTime: f.GetTotalTime(), WorkingTime: f.GetWorkingTime(), SandboxFault: f.GetSandboxFault(), Turns: f.GetTurns(), Retries: f.GetRetries(),
	}
	for _, u := range f.GetUsage() {
		sample.Usage = chat.AddUsage(sample.Usage, u)
	}
	return sample
}

// sampleLine says in a line how a sample ended.
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
