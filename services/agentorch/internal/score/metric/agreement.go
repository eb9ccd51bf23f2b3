package metric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

func agreementDefinitions() []Definition {
	params := param.List{{
		Name: "level", Type: param.String, Default: json.RawMessage(`"nominal"`), Enum: []string{`"nominal"`, `"ordinal"`, `"interval"`},
		Description: "Whether ratings are names, ranks or numbers on a scale. Ranks and scales need numbers.",
	}}
	return []Definition{{
		Name:        "krippendorff_alpha",
		Description: "Krippendorff's alpha: how far raters agree beyond chance. Each value is the list of a sample's ratings, as the reducer collect makes it.",
		Params:      params,
		New: func(given json.RawMessage) (Func, error) {
			p := struct {
				Level string `json:"level"`
			}{Level: "nominal"}
			if err := params.Decode(given, &p); err != nil {
				return nil, err
			}
			return func(_ context.Context, samples []Sample) (score.Value, error) { return alpha(p.Level, samples) }, nil
		},
	}}
}

// alpha is 1 - observed/expected disagreement over all samples with at least two ratings; NaN if there are none
// (Krippendorff 2011, Computing Krippendorff's Alpha-Reliability). If no disagreement is expected, it is 1.
func alpha(level string, samples []Sample) (score.Value, error) {
	units, err := ratings(level, samples)
	if err != nil || len(units) == 0 {
		return score.Unscored(), err
	}
	if level == "ordinal" {
		units = midpoints(units)
	}
	disagreement := squares
	if level == "nominal" {
		disagreement = mismatches
	}
	all := slices.Concat(units...)
	n := float64(len(all))
	observed := 0.0
	for _, unit := range units {
		observed += disagreement(unit) / float64(len(unit)-1)
	}
	expected := disagreement(all) / (n - 1)
	if expected == 0 {
		return score.Number(1), nil
	}
	return score.Number(1 - observed/expected), nil
}

// ratings returns the ratings of each sample that has at least two, as numbers. Nominal ratings are numbered in the
// order in which they appear.
func ratings(level string, samples []Sample) ([][]float64, error) {
	var units [][]float64
	names := map[score.Scalar]int{}
	for _, s := range samples {
		items := s.Value.Items()
		if len(items) < 2 {
			continue
		}
		unit := make([]float64, len(items))
		for i, item := range items {
			if level == "nominal" {
				at, known := names[item.Scalar()]
				if !known {
					at = len(names)
					names[item.Scalar()] = at
				}
				unit[i] = float64(at)
				continue
			}
			if item.Kind() != score.KindNumber && item.Kind() != score.KindBool {
				return nil, fmt.Errorf("metric krippendorff_alpha: sample %s: the rating %s is no number: use level nominal, or score with numbers", s.ID, item.Text())
			}
			f, _ := item.Float()
			if math.IsNaN(f) {
				return nil, errors.New("metric krippendorff_alpha: sample " + s.ID + ": a rating is unscored: leave it out of the list")
			}
			unit[i] = f
		}
		units = append(units, unit)
	}
	return units, nil
}

// mismatches counts the ordered pairs of different ratings.
func mismatches(unit []float64) float64 {
	counts := map[float64]int{}
	for _, f := range unit {
		counts[f]++
	}
	pairs := len(unit) * len(unit)
	for _, n := range counts {
		pairs -= n * n
	}
	return float64(pairs)
}

// squares sums the squared differences of all ordered pairs, which is 2n times the squared deviations from the mean.
func squares(unit []float64) float64 {
	n := float64(len(unit))
	return 2 * n * variance(unit) * (n - 1)
}

// midpoints replaces each rank by the number of ratings below it plus half of those that equal it; squared differences
// of these are the ordinal ones.
func midpoints(units [][]float64) [][]float64 {
	all := slices.Sorted(slices.Values(slices.Concat(units...)))
	ranked := make([][]float64, len(units))
	for i, unit := range units {
		for _, f := range unit {
			below, _ := slices.BinarySearch(all, f)
			upTo, _ := slices.BinarySearch(all, math.Nextafter(f, math.Inf(1)))
			ranked[i] = append(ranked[i], float64(below+upTo)/2)
		}
	}
	return ranked
}
