package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/result"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/worker"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// Judges are the scorers and metrics that evaluations may name.
type Judges struct {
	Scorers *score.Registry
	Metrics *metric.Registry
}

// plan is how an evaluation's scores become results.
type plan struct {
	scorers  []result.Scorer
	extra    result.Metrics
	reducers []reduce.Reducer
}

// standard returns the default metrics of a scorer, for tasks that name none.
func (j Judges) standard(ref *agentv1.ScorerRef) ([]string, error) {
	if ref.GetWorker() != nil {
		return worker.Metrics, nil
	}
	definition, err := j.Scorers.Definition(ref.GetName())
	return definition.Metrics, err
}

// check resolves the scorers, metrics and reducers of a new evaluation.
func (j Judges) check(spec *agentv1.EvalSpec) error {
	if err := atMost(bound.Scorers, len(spec.GetScorers()), "spec.scorers"); err != nil {
		return err
	}
	for i, ref := range spec.GetScorers() {
		if err := atMost(bound.Metrics, len(ref.GetMetrics()), fmt.Sprintf("spec.scorers[%d].metrics", i)); err != nil {
			return err
		}
	}
	if err := atMost(bound.Metrics, len(spec.GetMetrics()), "spec.metrics"); err != nil {
		return err
	}
	if err := atMost(bound.Reducers, len(spec.GetEpochs().GetReducers()), "spec.epochs.reducers"); err != nil {
		return err
	}
	_, err := j.plan(spec)
	return err
}

// atMost refuses more than want items of a field.
func atMost(want, got int, field string) error {
	if got > want {
		return rpcerr.InvalidField(field, "%d are too many; at most %d", got, want)
	}
	return nil
}

// plan resolves the scorers' names, the metrics and the reducers of a specification.
func (j Judges) plan(spec *agentv1.EvalSpec) (plan, error) {
	var p plan
	unique := run.ScorerNames(spec.GetScorers())
	for i, ref := range spec.GetScorers() {
		standard, err := j.standard(ref)
		if err != nil {
			return plan{}, rpcerr.In(fmt.Sprintf("spec.scorers[%d]", i), err)
		}
		metrics, field := spec.GetMetrics(), "spec.metrics"
		if len(metrics) == 0 {
			metrics, field = ref.GetMetrics(), fmt.Sprintf("spec.scorers[%d].metrics", i)
		}
		if len(metrics) == 0 {
			metrics = named(standard)
		}
		plain, err := j.metrics(metrics, field)
		if err != nil {
			return plan{}, err
		}
		p.scorers = append(p.scorers, result.Scorer{Name: unique[i], Params: raw(ref.GetParamsJson()), Metrics: result.Metrics{Plain: plain}})
	}
	extra := spec.GetMetrics()
	if len(extra) == 0 {
		extra = named([]string{"accuracy", "stderr"})
	}
	plain, err := j.metrics(extra, "spec.metrics")
	if err != nil {
		return plan{}, err
	}
	p.extra = result.Metrics{Plain: plain}
	if spec.GetEpochs().GetNoReducers() {
		p.reducers = []reduce.Reducer{}
	}
	for i, name := range spec.GetEpochs().GetReducers() {
		r, err := reduce.New(name)
		if err == nil {
			err = r.CheckEpochs(int(max(1, spec.GetEpochs().GetCount())))
		}
		if err != nil {
			return plan{}, rpcerr.In(fmt.Sprintf("spec.epochs.reducers[%d]", i), err)
		}
		p.reducers = append(p.reducers, r)
	}
	return p, nil
}

// metrics resolves the metrics of a field.
func (j Judges) metrics(refs []*agentv1.MetricRef, field string) ([]metric.Metric, error) {
	metrics := make([]metric.Metric, 0, len(refs))
	for i, ref := range refs {
		m, err := j.Metrics.New(metric.Spec{Name: ref.GetName(), Params: raw(ref.GetParamsJson())})
		if err != nil {
			return nil, rpcerr.In(fmt.Sprintf("%s[%d]", field, i), err)
		}
		metrics = append(metrics, m)
	}
	return metrics, nil
}

func named(names []string) []*agentv1.MetricRef {
	refs := make([]*agentv1.MetricRef, 0, len(names))
	for _, name := range names {
		refs = append(refs, &agentv1.MetricRef{Name: name})
	}
	return refs
}

func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// Outcome is the result of an evaluation for one model.
type Outcome struct {
	// Scorers are the scorers with their names within the results and their metrics.
	Scorers []result.Scorer
	// Total counts the samples times epochs, Completed those that succeeded.
	Total, Completed int
	// Results are computed from all samples with scores.
	Results result.Results
}

// Outcome computes the result of the finished samples for the model at an index of the specification.
func (j Judges) Outcome(ctx context.Context, s *State, samples *Samples, model int) (Outcome, error) {
	p, err := j.plan(s.Eval.GetSpec())
	if err != nil {
		return Outcome{}, err
	}
	return p.outcome(ctx, s, samples, model)
}

func (p plan) outcome(ctx context.Context, s *State, samples *Samples, model int) (Outcome, error) {
	o := Outcome{Scorers: p.scorers}
	in := result.Input{Scorers: p.scorers, Extra: p.extra, Reducers: p.reducers}
	for i := range s.Slots {
		slot := &s.Slots[i]
		if slot.Model != model {
			continue
		}
		o.Total++
		if slot.Finished == nil {
			continue
		}
		if slot.Finished.GetState() == agentv1.RunState_RUN_STATE_SUCCEEDED {
			o.Completed++
		}
		if epoch, ok := epochOf(slot, samples.At(slot.Sample)); ok {
			in.Epochs = append(in.Epochs, epoch)
		}
	}
	var err error
	o.Results, err = result.Compute(ctx, in)
	return o, err
}

// results computes the results of the finished samples, for each model separately. Unscored is the first model without
// a score although there are scorers; empty if there is none.
func (p plan) results(ctx context.Context, s *State, samples *Samples) (all *agentv1.EvalResults, unscored string, err error) {
	all = &agentv1.EvalResults{}
	models := s.Eval.GetSpec().GetModels()
	for model := range models {
		o, err := p.outcome(ctx, s, samples, model)
		if err != nil {
			return nil, "", err
		}
		all.TotalSamples += int32(o.Total)
		all.CompletedSamples += int32(o.Completed)
		name := ""
		if len(models) > 1 {
			name = models[model].GetModel()
		}
		for _, e := range o.Results.Entries {
			all.Scores = append(all.Scores, entry(e, name))
		}
		scored := slices.ContainsFunc(o.Results.Entries, func(e result.Entry) bool { return e.Scored > 0 })
		if unscored == "" && len(p.scorers) > 0 && !scored {
			unscored = models[model].GetModel()
		}
	}
	return all, unscored, nil
}

// epochOf returns the scores of a slot; ok is false if it has none.
func epochOf(slot *Slot, sample *agentv1.Sample) (result.Epoch, bool) {
	named := slot.Finished.GetContent().GetScores()
	if len(named) == 0 {
		return result.Epoch{}, false
	}
	id, err := dataset.ParseID(sample.GetId(), sample.GetIntegerId())
	if err != nil {
		id = dataset.TextID(sample.GetId())
	}
	e := result.Epoch{ID: id, Scores: map[string]score.Score{}}
	if text := sample.GetMetadataJson(); text != "" {
		e.Metadata, _ = orderedjson.DecodeObject([]byte(text)) // It was read from JSON.
	}
	for _, n := range named {
		e.Scores[n.GetName()] = scorewire.ToScore(n.GetScore())
	}
	return e, true
}

// finite is a number that JSON can hold; nil for all others. JSON would have a text in their place, which compares as
// larger than every number.
func finite(f float64) *float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return &f
}

func entry(e result.Entry, model string) *agentv1.ScoreResult {
	m := &agentv1.ScoreResult{
		Name: e.Name, Scorer: e.Scorer, ParamsJson: string(e.Params), Model: model,
		ScoredSamples: int32(e.Scored), UnscoredSamples: int32(e.Unscored),
	}
	if e.Reducer != "" {
		m.Reducer = &e.Reducer
	}
	for _, v := range e.Metrics {
		r := &agentv1.MetricResult{Key: v.Key, Name: v.Name, Value: finite(v.Value), ParamsJson: string(v.Params)}
		if v.Group != "" {
			r.Group = &v.Group
		}
		m.Metrics = append(m.Metrics, r)
	}
	return m
}
