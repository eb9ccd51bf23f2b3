package eval

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// outcome returns the event that records how a slot's run ended. The row has all of it except the content of scores.
// For that content, and if the row cannot be read, it reads the journal. If that fails too, or if the scores are too
// large, the sample fails and the evaluation continues.
func (d *loop) outcome(ctx context.Context, slot *Slot, row journal.Listed) (*agentv1.Event, error) {
	run, name := &agentv1.Run{}, row.Name
	damaged, unreadable := proto.Unmarshal(row.View, run), error(nil)
	if damaged != nil || len(run.GetScores()) > 0 {
		whole, err := d.engine.deps.Runs.View(ctx, name, true)
		switch {
		case err == nil:
			run = whole
		case !errors.Is(err, journal.ErrUnreadable):
			return nil, err
		case damaged != nil:
			run, unreadable = &agentv1.Run{}, err // A partly decoded row may be wrong.
		default:
			unreadable = err
		}
	}
	f := &agentv1.SampleFinished{
		Sample: d.sample(slot).GetId(), Epoch: int32(slot.Epoch), Run: name, State: run.GetState(),
		Limit: run.GetLimit(), Error: run.GetError(), Usage: run.GetUsage(), RoleUsage: run.GetRoleUsage(), WorkingTime: run.GetWorkingTime(),
		SandboxFault: run.GetSandboxFault(), Turns: run.GetTurns(), Retries: run.GetRetries(), LostModelCalls: run.GetLostModelCalls(),
	}
	if run.GetStartTime() != nil && run.GetEndTime() != nil {
		f.TotalTime = durationpb.New(run.GetEndTime().AsTime().Sub(run.GetStartTime().AsTime()))
	}
	if unreadable != nil {
		d.engine.deps.Logger.Error("a run cannot be read, which fails its sample", "eval", d.head.Name, "run", name, "error", unreadable)
		f.State = agentv1.RunState_RUN_STATE_FAILED
		f.Error = &agentv1.RunError{
			Reason:  rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_INTERNAL),
			Message: "the journal of " + name + " cannot be read; the server's log has the cause",
		}
		return &agentv1.Event{Id: name, Kind: &agentv1.Event_SampleFinished{SampleFinished: f}}, nil
	}
	switch scores, err := keptScores(run); {
	case err != nil:
		f.State, f.Error = agentv1.RunState_RUN_STATE_FAILED, &agentv1.RunError{Reason: rpcerr.ReasonName(rpcerr.Reason(err)), Message: err.Error()}
	case len(scores) > 0:
		f.Content = &agentv1.SampleFinishedContent{Scores: scores}
	}
	return &agentv1.Event{Id: name, Kind: &agentv1.Event_SampleFinished{SampleFinished: f}}, nil
}

// keptScores are the scores of a run as the evaluation keeps them: with long texts cut.
func keptScores(run *agentv1.Run) ([]*agentv1.NamedScore, error) {
	var scores []*agentv1.NamedScore
	size := 0
	for _, named := range run.GetScores() {
		kept := &agentv1.NamedScore{Name: named.GetName(), Score: keptScore(named.GetScore())}
		scores, size = append(scores, kept), size+proto.Size(kept)
	}
	if size > bound.EvalScoresBytes {
		return nil, rpcerr.RequestTooLarge("", bound.EvalScoresBytes, "the scores of %s have %d bytes, and an evaluation keeps at most %d of a sample", run.GetName(), size, bound.EvalScoresBytes)
	}
	return scores, nil
}

// keptScore is a score with its long texts cut. It shares no text with the run's, which would stay in memory with it.
func keptScore(s *agentv1.Score) *agentv1.Score {
	kept := &agentv1.Score{Value: s.GetValue(), Reason: s.Reason, MetadataJson: s.GetMetadataJson()}
	if s.Answer != nil {
		kept.Answer = new(keptText(s.GetAnswer()))
	}
	if s.Explanation != nil {
		kept.Explanation = new(keptText(s.GetExplanation()))
	}
	if n := len(s.GetMetadataJson()); n > bound.EvalScoreTextBytes {
		kept.MetadataJson = fmt.Sprintf(`{"cut": "%d bytes are left out; the run has them"}`, n)
	}
	return kept
}

func keptText(text string) string {
	if len(text) <= bound.EvalScoreTextBytes {
		return text
	}
	mark := fmt.Sprintf("… (cut; the run has all %d bytes)", len(text))
	return strings.ToValidUTF8(text[:bound.EvalScoreTextBytes-len(mark)], "") + mark
}
