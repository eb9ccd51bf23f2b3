package decide

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/exec"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/grader"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/worker"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

// maxScore bounds the outcome of a scorer: the size that the journal accepts, less the envelope.
const maxScore = bound.JournalValuesBytes - 1<<20

// scoreNow begins a round of scoring after which the agent continues. It returns false while another agent's round is
// open.
func (d *Step) scoreNow(f *run.Frame) (bool, error) {
	if len(d.s.Spec().GetScorers()) == 0 {
		return true, d.fail(rpcerr.InvalidField("scorers", "the agent wants its work judged, and the run has no scorer"))
	}
	if d.s.Scoring != nil {
		return false, nil
	}
	return true, d.emitScoreIntent(f, 0, true)
}

func (d *Step) emitScoreIntent(f *run.Frame, index int, intermediate bool) error {
	scorers := d.s.Spec().GetScorers()
	return d.emitIn(f, run.NewEvent(&agentv1.ScoreIntent{Name: run.ScorerNames(scorers)[index], Scorer: scorers[index], Intermediate: intermediate}))
}

// judge continues the round of scoring: the next scorer returns its score, or requests an effect first.
func (d *Step) judge() (bool, error) {
	s := d.s
	round := s.Scoring
	if round.Intent == 0 {
		return true, d.emitScoreIntent(round.Frame, round.Next, round.Intermediate)
	}
	failpoint.Hit("agentorch/during-scoring")
	outcome := &agentv1.ScoreOutcome{Intent: round.Intent, Name: run.ScorerNames(s.Spec().GetScorers())[round.Next], Intermediate: round.Intermediate}
	step, err := d.askScorer(s.Spec().GetScorers()[round.Next], round.Results)
	if err != nil {
		d.Faults = append(d.Faults, err)
		outcome.Error = run.ErrorOf(err)
		return true, d.emitIn(round.Frame, run.NewEvent(outcome))
	}
	if step.Effect != nil {
		return true, d.scorerEffect(round.Frame, step.Effect)
	}
	judged := scorewire.FromScore(*step.Score)
	outcome.Value, outcome.Content = judged.GetValue(), &agentv1.ScoreContent{Score: judged, Target: s.Spec().GetTarget()}
	if size := proto.Size(outcome); size > maxScore {
		tooLarge := rpcerr.RequestTooLarge("", maxScore, "the score and its target have %d bytes, and a run keeps at most %d", size, maxScore)
		outcome.Value, outcome.Content, outcome.Error = nil, nil, run.ErrorOf(tooLarge)
	}
	return true, d.emitIn(round.Frame, run.NewEvent(outcome))
}

func (d *Step) askScorer(ref *agentv1.ScorerRef, outcomes []proto.Message) (score.Step, error) {
	scorer, err := d.scorer(ref)
	if err != nil {
		return score.Step{}, err
	}
	results := make([]score.Result, len(outcomes))
	for i, outcome := range outcomes {
		results[i] = outcome
	}
	in, err := scoreInput(d.s)
	if err != nil {
		return score.Step{}, err
	}
	if err := d.comparable(ref, in); err != nil {
		return score.Step{}, err
	}
	return scorer.Next(in, results)
}

// comparable refuses to compare more than a moment takes.
func (d *Step) comparable(ref *agentv1.ScorerRef, in score.Input) error {
	said, n := len(in.Completion), len(in.Targets)
	if n <= 1 || said*n <= bound.ComparedBytes || ref.GetWorker() != nil {
		return nil
	}
	if definition, err := d.scorers.Definition(ref.GetName()); err != nil || !definition.NeedsTarget {
		return err
	}
	return rpcerr.RequestTooLarge("", bound.ComparedBytes, "the scorer %s would compare %d bytes that the model said with %d targets; bytes × targets are at most %d",
		ref.GetName(), said, n, bound.ComparedBytes)
}

// scorer returns the scorer of a reference: a built-in one, or one that a worker serves.
func (d *Step) scorer(ref *agentv1.ScorerRef) (score.Scorer, error) {
	if ref.GetWorker() != nil {
		return worker.New(ref.GetWorker()), nil
	}
	return d.scorers.New(ref.GetName(), json.RawMessage(ref.GetParamsJson()))
}

// scorerEffect journals the intent of an effect that a scorer asks for.
func (d *Step) scorerEffect(f *run.Frame, effect score.Effect) error {
	switch asked := effect.(type) {
	case exec.Command:
		return d.emitIn(f, run.NewEvent(&agentv1.ExecIntent{Environment: asked.Environment, RequestId: d.s.Key(d.s.Seq + 1), Purpose: run.PurposeScore, Content: asked.Spec}))
	case worker.Judgement:
		return d.askWorker(f, asked.Worker, run.PurposeScore)
	case grader.Question:
		content := &agentv1.ModelIntentContent{Messages: asked.Messages}
		return d.emitIn(f, run.NewEvent(d.modelIntent(run.PurposeScore, asked.Model, asked.Config, content, nil)))
	default:
		return d.fail(rpcerr.Internal("a scorer asks for a %T", effect))
	}
}

// scoreInput returns the input of a run's scorers.
func scoreInput(s *run.State) (score.Input, error) {
	in, err := SampleInput(s.Spec())
	if err != nil {
		return in, err
	}
	in.Completion = chat.Completion(s.Output())
	if noted, ok := s.Stored(agent.SelectionKey); ok {
		var selection agent.Selection
		if err := json.Unmarshal([]byte(noted), &selection); err == nil {
			in.Choices.Select(selection.Selected)
		}
	}
	return in, nil
}

// SampleInput returns the input of a run's scorers before the run starts.
func SampleInput(spec *agentv1.RunSpec) (score.Input, error) {
	in := score.Input{Targets: spec.GetTarget().GetValues()}
	if spec.GetMetadataJson() != "" {
		metadata, err := orderedjson.DecodeObject([]byte(spec.GetMetadataJson()))
		if err != nil {
			return in, rpcerr.InvalidField("spec.metadata_json", "%v", err)
		}
		in.Metadata = metadata
	}
	if len(spec.GetChoices()) > 0 {
		in.Choices = choice.New(spec.GetChoices())
	}
	return in, nil
}
