package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
	"github.com/evalfleet/evalfleet/services/allinone/internal/transcript"
)

// samples lists samples of an evaluation.
func (s *session) samples(ctx context.Context, eval string, states ...agentv1.RunState) ([]*agentv1.EvalSample, error) {
	req := &agentv1.ListSamplesRequest{Parent: eval, PageSize: 1000, States: states, Content: true}
	return page(0, func(token string) ([]*agentv1.EvalSample, string, error) {
		req.PageToken = token
		r, err := s.evals.ListSamples(ctx, req)
		return r.GetSamples(), r.GetNextPageToken(), err
	})
}

// showScoresSoFar writes the mean scores of the samples that have ended, of an evaluation that has no results.
func (s *session) showScoresSoFar(ctx context.Context, e *agentv1.Eval) error {
	if len(e.GetResults().GetScores()) > 0 || progress.Done(e.GetProgress()) == 0 {
		return nil
	}
	samples, err := s.samples(ctx, e.GetName(), agentv1.RunState_RUN_STATE_SUCCEEDED)
	if err != nil {
		return err
	}
	var means progress.Means
	for _, sample := range samples {
		for _, score := range sample.GetScores() {
			means.Add(score)
		}
	}
	var rows [][]string
	for _, m := range means {
		rows = append(rows, []string{m.Name, progress.Count(int64(m.Count)), number(new(m.Value()))})
	}
	if len(rows) > 0 {
		s.app.print("")
		s.app.table([]string{"scorer", "samples", "mean so far"}, rows)
	}
	return nil
}

// fewSamples bounds the samples at work that eval show lists.
const fewSamples = 10

// showAtWork writes what the samples at work of an evaluation do.
func (s *session) showAtWork(ctx context.Context, e *agentv1.Eval) error {
	if ended(e) || s.idle || e.GetProgress().GetRunning() == 0 {
		return nil
	}
	samples, err := s.samples(ctx, e.GetName(), begunRuns...)
	if err != nil {
		return err
	}
	if len(samples) == 0 {
		return nil
	}
	s.app.print("")
	s.showSamples(samples[:min(fewSamples, len(samples))])
	if more := len(samples) - fewSamples; more > 0 {
		s.app.print("and %d more at work", more)
	}
	return nil
}

// showSamples writes a row for each sample.
func (s *session) showSamples(samples []*agentv1.EvalSample) {
	severalModels := false
	for _, sample := range samples {
		severalModels = severalModels || sample.GetModel() != samples[0].GetModel()
	}
	head := []string{"sample", "epoch", "state", "scores", "turns", "tokens", "retries", "time", "note"}
	if severalModels {
		head = append(head, "model")
	}
	var rows [][]string
	for _, sample := range samples {
		state, took, note := transcript.RunStateText(sample.GetState()), sample.GetTotalTime().AsDuration(), noteOf(sample)
		if sample.GetStartTime() != nil { // It is at work.
			took = max(0, time.Since(sample.GetStartTime().AsTime()))
		}
		if s.idle && slices.Contains(activeRuns, sample.GetState()) && sample.GetRun() != "" && !undecided(sample.GetWait()) {
			state, took, note = stateInterrupted, 0, ""
		}
		row := []string{
			sample.GetId(), fmt.Sprint(sample.GetEpoch()), state, scoreTexts(sample), fmt.Sprint(sample.GetTurns()),
			progress.Count(sample.GetUsage().GetTotalTokens()), fmt.Sprint(sample.GetRetries()), took.Round(10 * time.Millisecond).String(), note,
		}
		if severalModels {
			row = append(row, sample.GetModel())
		}
		rows = append(rows, row)
	}
	s.app.table(head, rows)
}

// sampleID is the id of the sample that a person names by it or by its beginning.
func sampleID(eval string, samples []*agentv1.EvalSample, begin string) (string, error) {
	var ids, fits []string
	for _, sample := range samples {
		switch id := sample.GetId(); {
		case id == begin:
			return id, nil
		case slices.Contains(ids, id): // Of another epoch or model.
		default:
			if ids = append(ids, id); strings.HasPrefix(id, begin) {
				fits = append(fits, id)
			}
		}
	}
	switch len(fits) {
	case 0:
		return "", fmt.Errorf("%s has no sample %s; there are %s", short(eval), begin, few(ids))
	case 1:
		return fits[0], nil
	}
	return "", usage("%d samples begin with %q: %s; write more of it", len(fits), begin, few(fits))
}

// scoreTexts are the values of a sample's scores, with their names where there are several.
func scoreTexts(sample *agentv1.EvalSample) string {
	var scores []string
	for _, score := range sample.GetScores() {
		text := transcript.ScoreText(score.GetScore().GetValue())
		if len(sample.GetScores()) > 1 {
			text = score.GetName() + " " + text
		}
		scores = append(scores, text)
	}
	return strings.Join(scores, ", ")
}

// noteOf describes why a sample ended, or what it does now.
func noteOf(sample *agentv1.EvalSample) string {
	switch {
	case sample.GetLimit() != nil:
		return enum.Word(sample.GetLimit().GetType()) + " limit"
	case sample.GetError() != nil:
		return sample.GetError().GetMessage()
	case sample.GetSandboxFault() != "":
		return "no sandbox: " + sample.GetSandboxFault()
	}
	return progress.Doing(sample.GetWait(), sample.GetNote(), sample.GetActivity())
}
