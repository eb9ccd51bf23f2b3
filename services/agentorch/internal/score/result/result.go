// Package result computes the results of an evaluation from the scores of all samples and epochs: one entry per scorer
// and reducer (or per key of map values) with its metrics, and the reduced score of every sample.
//
// Compute is a pure function of the scores, so that results can be computed at any time from the journal: while an
// evaluation runs, at its end, and again after a score was edited.
package result

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// Scorer is a scorer of the evaluation.
type Scorer struct {
	// Name is the name under which samples have its scores; see UniqueNames.
	Name string
	// Params are the scorer's parameters as given; nil if there are none.
	Params json.RawMessage
	// Metrics are the metrics to compute over its scores.
	Metrics Metrics
}

// Metrics are the metrics of one scorer. Without any the scorer has no results.
type Metrics struct {
	// Plain are computed over whole values.
	Plain []metric.Metric
	// ByKey are computed over the keys of map values, each key an entry of its own.
	ByKey []KeyMetrics
}

// KeyMetrics are the metrics of all keys of map values that match a glob.
type KeyMetrics struct {
	Glob    string
	Metrics []metric.Metric
}

// Epoch holds the scores of one sample in one epoch.
type Epoch struct {
	// ID is the sample's id; epochs of equal ids belong together.
	ID dataset.ID
	// Metadata is the sample's metadata.
	Metadata *orderedjson.Object
	// Scores are the scores by scorer name. A scorer may be missing, for example after an error.
	Scores map[string]score.Score
}

// Input is the complete input of the results.
type Input struct {
	// Scorers are the evaluation's scorers in order. Scores under other names, which a solver may set, get the metrics
	// of Extra.
	Scorers []Scorer
	// Extra are the metrics of scores that belong to no scorer.
	Extra Metrics
	// Reducers reduce the epochs of a sample. Nil takes the mean; empty but not nil reduces nothing, so that metrics
	// see every epoch.
	Reducers []reduce.Reducer
	// Epochs are the scored samples, in the order in which samples should appear.
	Epochs []Epoch
}

// Results are the results of an evaluation.
type Results struct {
	Entries    []Entry
	Reductions []Reduction
	// Warnings describe doubtful inputs of the results to people, one sentence each.
	Warnings []string
}

// Entry are the metrics of one scorer, reducer and key.
type Entry struct {
	// Name is the scorer's name, or the key of the map values.
	Name string
	// Scorer is the scorer's name.
	Scorer string
	// Reducer names the reducer; empty for the default reducer or none.
	Reducer string
	// Scored and Unscored count the values that metrics used and those that were left out.
	Scored, Unscored int
	Params           json.RawMessage
	Metrics          []Metric
}

// Metric is one number of the results.
type Metric struct {
	// Key is unique within its entry.
	Key string
	// Name is the metric's name, or the name of a part if a metric has several.
	Name string
	// Group is the name of the metric that this is a part of; empty for a whole metric.
	Group string
	// Value may be NaN, when nothing was scored.
	Value  float64
	Params json.RawMessage
}

// Reduction are the reduced scores of all samples for one scorer and reducer.
type Reduction struct {
	Scorer string
	// Reducer names the reducer; empty for the default reducer.
	Reducer string
	Samples []Reduced
}

// Reduced is the reduced score of one sample.
type Reduced struct {
	ID       dataset.ID
	Metadata *orderedjson.Object
	Score    score.Score
}

// UniqueNames makes the names of scorers unique: of equal names, the second is followed by 1, the third by 2, and so
// on.
func UniqueNames(names []string) []string {
	unique := make([]string, 0, len(names))
	taken, next := map[string]bool{}, map[string]int{}
	for _, name := range names {
		candidate := name
		for taken[candidate] {
			next[name]++
			candidate = name + strconv.Itoa(next[name])
		}
		taken[candidate] = true
		unique = append(unique, candidate)
	}
	return unique
}

// Compute computes the results. It fails if a reducer or metric does not accept the values, and stops when ctx ends.
func Compute(ctx context.Context, in Input) (Results, error) {
	var results Results
	for _, scorer := range append(slices.Clone(in.Scorers), extraScorers(in)...) {
		if err := results.add(ctx, scorer, in); err != nil {
			return Results{}, fmt.Errorf("results of scorer %s: %w", scorer.Name, err)
		}
	}
	return results, nil
}

// extraScorers returns a scorer of every name that only scores have, in the order of appearance; names within one
// sample are sorted.
func extraScorers(in Input) []Scorer {
	var extra []Scorer
	known := map[string]bool{}
	for _, s := range in.Scorers {
		known[s.Name] = true
	}
	for _, epoch := range in.Epochs {
		for _, name := range sortedNames(epoch.Scores) {
			if !known[name] {
				known[name] = true
				extra = append(extra, Scorer{Name: name, Metrics: in.Extra})
			}
		}
	}
	return extra
}

func sortedNames(scores map[string]score.Score) []string {
	names := make([]string, 0, len(scores))
	for name := range scores {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// add computes the entries of one scorer, once for each view of its scores that its metrics need.
func (r *Results) add(ctx context.Context, scorer Scorer, in Input) error {
	var all []Reduced
	for _, epoch := range in.Epochs {
		if s, ok := epoch.Scores[scorer.Name]; ok {
			all = append(all, Reduced{ID: epoch.ID, Metadata: epoch.Metadata, Score: s})
		}
	}
	r.warn(scorer, all)
	if in.Reducers != nil && len(in.Reducers) == 0 {
		if scorer.Metrics.any(func(m metric.Metric) bool { return m.View == metric.Reduced }) && repeats(all) {
			return fmt.Errorf("a metric needs reduced scores, but epochs are not reduced: name a reducer")
		}
		return r.addEntries(ctx, scorer, scorer.Metrics, all, "")
	}
	reduced := scorer.Metrics.filter(func(m metric.Metric) bool { return m.View != metric.Unreduced })
	unreduced := scorer.Metrics.filter(func(m metric.Metric) bool { return m.View == metric.Unreduced })
	if !reduced.empty() {
		reducers := in.Reducers
		if reducers == nil {
			reducers = []reduce.Reducer{reduce.Mean()}
		}
		for _, reducer := range reducers {
			name := reducer.Name()
			if in.Reducers == nil && unreduced.empty() {
				name = ""
			}
			samples, err := reduceAll(ctx, reducer, all)
			if err != nil {
				return err
			}
			r.Reductions = append(r.Reductions, Reduction{Scorer: scorer.Name, Reducer: name, Samples: samples})
			if err := r.addEntries(ctx, scorer, reduced, samples, name); err != nil {
				return err
			}
		}
	}
	if unreduced.empty() {
		return nil
	}
	return r.addEntries(ctx, scorer, unreduced, all, "")
}

// warn warns of values that count 0 because they are not numbers. A frequency accepts them.
func (r *Results) warn(scorer Scorer, all []Reduced) {
	if scorer.Metrics.filter(func(m metric.Metric) bool { return m.View != metric.Unreduced }).Plain == nil {
		return
	}
	odd := 0
	example := ""
	for _, s := range all {
		if _, ok := s.Score.Value.Float(); !ok {
			odd++
			example = s.Score.Value.Text()
		}
	}
	if odd > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("scorer %s: %d values, such as %.100q, are no numbers and count 0", scorer.Name, odd, example))
	}
}

// reduceAll reduces the epochs of each sample, in the order of the samples.
func reduceAll(ctx context.Context, reducer reduce.Reducer, all []Reduced) ([]Reduced, error) {
	var samples []Reduced
	var epochs [][]score.Score
	index := map[string]int{}
	for _, s := range all {
		at, ok := index[s.ID.String()]
		if !ok {
			at = len(samples)
			index[s.ID.String()] = at
			samples = append(samples, s)
			epochs = append(epochs, nil)
		}
		epochs[at] = append(epochs[at], s.Score)
	}
	for i := range samples {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		reduced, err := reducer.Reduce(epochs[i])
		if err != nil {
			return nil, fmt.Errorf("sample %s: %w", samples[i].ID, err)
		}
		samples[i].Score = reduced
	}
	return samples, nil
}

func repeats(all []Reduced) bool {
	seen := map[string]bool{}
	for _, s := range all {
		if seen[s.ID.String()] {
			return true
		}
		seen[s.ID.String()] = true
	}
	return false
}
