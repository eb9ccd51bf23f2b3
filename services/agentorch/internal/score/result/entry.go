package result

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
)

// addEntries computes metrics over samples: one entry for the plain ones, then one for each key of map values.
func (r *Results) addEntries(ctx context.Context, scorer Scorer, metrics Metrics, samples []Reduced, reducer string) error {
	if len(metrics.Plain) > 0 {
		entry := Entry{Name: scorer.Name, Scorer: scorer.Name, Reducer: reducer, Params: scorer.Params}
		if err := entry.compute(ctx, metrics.Plain, scoredSamples(samples), expand); err != nil {
			return err
		}
		entry.Unscored = len(samples) - entry.Scored
		r.Entries = append(r.Entries, entry)
	}
	values := make([]score.Value, len(samples))
	for i, s := range samples {
		values[i] = s.Score.Value
	}
	for _, k := range resolve(metrics.ByKey, values) {
		picked, err := pick(k.Glob, samples)
		if err != nil {
			return err
		}
		entry := Entry{Name: k.Glob, Scorer: scorer.Name, Reducer: reducer, Params: scorer.Params}
		if err := entry.compute(ctx, k.Metrics, picked, expandByKey); err != nil {
			return fmt.Errorf("key %s: %w", k.Glob, err)
		}
		entry.Unscored = len(samples) - entry.Scored
		r.Entries = append(r.Entries, entry)
	}
	return nil
}

// scoredSamples leaves out the unscored ones.
func scoredSamples(samples []Reduced) []metric.Sample {
	scored := make([]metric.Sample, 0, len(samples))
	for _, s := range samples {
		if !s.Score.Value.IsUnscored() {
			scored = append(scored, metric.Sample{ID: s.ID.String(), Value: s.Score.Value, Metadata: s.Metadata})
		}
	}
	return scored
}

// pick takes one key out of the map values of all scored samples.
func pick(key string, samples []Reduced) ([]metric.Sample, error) {
	var picked []metric.Sample
	for _, s := range scoredSamples(samples) {
		if s.Value.Kind() != score.KindMap {
			return nil, fmt.Errorf("metrics by key need map values, but sample %s has %.100q", s.ID, s.Value.Text())
		}
		value, ok := s.Value.Lookup(key)
		if !ok {
			return nil, fmt.Errorf("the value of sample %s has no key %q", s.ID, key)
		}
		if !value.IsUnscored() {
			s.Value = value
			picked = append(picked, s)
		}
	}
	return picked, nil
}

// expansion turns the value of a metric into the numbers of the results. Taken are the keys that the entry already has.
type expansion func(m metric.Metric, value score.Value, taken *keys) ([]Metric, error)

// compute fills the entry with metrics over the scored samples.
func (e *Entry) compute(ctx context.Context, metrics []metric.Metric, scored []metric.Sample, expand expansion) error {
	e.Scored = len(scored)
	taken := &keys{used: map[string]bool{}}
	for _, m := range metrics {
		if err := ctx.Err(); err != nil {
			return err
		}
		value, err := m.Compute(ctx, scored)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(scored) == 0 {
			value, err = ofNothing(value, err), nil
		}
		if err != nil {
			return err
		}
		numbers, err := expand(m, value, taken)
		if err != nil {
			return fmt.Errorf("metric %s: %w", m.Name, err)
		}
		e.Metrics = append(e.Metrics, numbers...)
	}
	return nil
}

// ofNothing is the value of a metric if nothing was scored: NaN, unless the metric has parts, whose names stay.
func ofNothing(value score.Value, err error) score.Value {
	if err == nil && value.Kind() == score.KindMap && len(value.Entries()) > 0 {
		return value
	}
	return score.Unscored()
}

// expand names the parts of a map by their keys and those of a list by the metric's name and their position from 1.
// Null parts are left out. A duplicate key gets a number from 2.
func expand(m metric.Metric, value score.Value, taken *keys) ([]Metric, error) {
	var numbers []Metric
	add := func(key, name, group string, part score.Value) error {
		if part.Kind() == score.KindNull {
			return nil
		}
		f, err := number(part)
		if err != nil {
			return err
		}
		key = taken.free(key)
		taken.take(key)
		numbers = append(numbers, Metric{Key: key, Name: name, Group: group, Value: f, Params: m.Params})
		return nil
	}
	whole := taken.free(m.Name)
	switch value.Kind() {
	case score.KindMap:
		for _, entry := range value.Entries() {
			if err := add(entry.Key, entry.Key, m.Name, entry.Value); err != nil {
				return nil, err
			}
		}
	case score.KindList:
		for i, item := range value.Items() {
			position := strconv.Itoa(i + 1)
			if err := add(whole+"-"+position, position, m.Name, item); err != nil {
				return nil, err
			}
		}
	case score.KindNull, score.KindText, score.KindNumber, score.KindBool:
		if err := add(whole, m.Name, "", value); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// expandByKey names the parts of maps and lists by the metric's name and their key, or their position from 0.
func expandByKey(m metric.Metric, value score.Value, _ *keys) ([]Metric, error) {
	var numbers []Metric
	add := func(name string, part score.Value) error {
		f, err := number(part)
		numbers = append(numbers, Metric{Key: m.Name + "_" + name, Name: name, Group: m.Name, Value: f, Params: m.Params})
		return err
	}
	switch value.Kind() {
	case score.KindMap:
		for _, entry := range value.Entries() {
			if err := add(entry.Key, entry.Value); err != nil {
				return nil, err
			}
		}
	case score.KindList:
		for i, item := range value.Items() {
			if err := add(strconv.Itoa(i), item); err != nil {
				return nil, err
			}
		}
	case score.KindNull, score.KindText, score.KindNumber, score.KindBool:
		f, err := number(value)
		return []Metric{{Key: m.Name, Name: m.Name, Value: f, Params: m.Params}}, err
	}
	return numbers, nil
}

// number reads one part of a metric.
func number(part score.Value) (float64, error) {
	if part.Kind() == score.KindNumber || part.Kind() == score.KindBool {
		f, _ := part.Float()
		return f, nil
	}
	return math.NaN(), fmt.Errorf("it gave %.100q, which is no number", part.Text())
}

// keys are the keys of an entry. Finding a free key takes constant time.
type keys struct {
	used map[string]bool
	// highest is the highest number, from 2, of the keys with a text; nil until a duplicate key is requested.
	highest map[string]int
}

// free returns key or, if it is in use, key with the number after the highest one in use, from 2.
func (k *keys) free(key string) string {
	if !k.used[key] {
		return key
	}
	if k.highest == nil {
		k.highest = map[string]int{}
		for used := range k.used {
			k.count(used)
		}
	}
	return key + strconv.Itoa(max(1, k.highest[key])+1)
}

func (k *keys) take(key string) {
	k.used[key] = true
	if k.highest != nil {
		k.count(key)
	}
}

// count notes the numbers that a key ends with.
func (k *keys) count(key string) {
	const digits = 18 // of a number that an int holds
	for at := len(key) - 1; at >= max(0, len(key)-digits) && '0' <= key[at] && key[at] <= '9'; at-- {
		if n, err := strconv.Atoi(key[at:]); err == nil {
			k.highest[key[:at]] = max(k.highest[key[:at]], n)
		}
	}
}
