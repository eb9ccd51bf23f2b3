package metric

import (
	"context"
	"encoding/json"
	"math"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

func meanDefinitions() []Definition {
	return []Definition{
		ofFloats("accuracy", "The share of right answers: the mean of the values as numbers; 0 without samples.", mean),
		ofFloats("mean", "The mean of the values as numbers; 0 without samples.", mean),
	}
}

func spreadDefinitions() []Definition {
	return []Definition{
		ofFloats("std", "The standard deviation of the values in the sample; 0 for fewer than two.", func(f []float64) float64 { return math.Sqrt(variance(f)) }),
		ofFloats("var", "The variance of the values in the sample; 0 for fewer than two.", variance),
		stderrDefinition(),
		bootstrapDefinition(),
	}
}

func mean(numbers []float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	sum := 0.0
	for _, f := range numbers {
		sum += f
	}
	return sum / float64(len(numbers))
}

// variance is that of a sample: squared deviations over n-1.
func variance(numbers []float64) float64 {
	if len(numbers) < 2 {
		return 0
	}
	m, sum := mean(numbers), 0.0
	for _, f := range numbers {
		sum += (f - m) * (f - m)
	}
	return sum / float64(len(numbers)-1)
}

// standardError is that of the mean by the central limit theorem.
func standardError(numbers []float64) float64 {
	if len(numbers) < 2 {
		return 0
	}
	return math.Sqrt(variance(numbers) / float64(len(numbers)))
}

var clusterParam = param.Param{
	Name: "cluster", Type: param.String,
	Description: "Key of the samples' metadata that tells which of them belong together and so are not independent.",
}

func stderrDefinition() Definition {
	params := param.List{clusterParam}
	return Definition{
		Name:        "stderr",
		Description: "The standard error of the mean; 0 for fewer than two values or clusters.",
		Params:      params,
		Check:       clustered("stderr"),
		New: func(given json.RawMessage) (Func, error) {
			var p struct {
				Cluster *string `json:"cluster"`
			}
			if err := params.Decode(given, &p); err != nil {
				return nil, err
			}
			return func(_ context.Context, samples []Sample) (score.Value, error) {
				if p.Cluster == nil {
					return score.Number(standardError(floats(samples))), nil
				}
				clusters, err := partition("stderr", *p.Cluster, samples)
				if err != nil {
					return score.Value{}, err
				}
				return score.Number(clusteredError(clusters)), nil
			}, nil
		},
	}
}

func bootstrapDefinition() Definition {
	params := param.List{resamplesParam}
	return Definition{
		Name:        "bootstrap_stderr",
		Description: "The standard error of the mean by resampling.",
		Params:      params,
		New: func(given json.RawMessage) (Func, error) {
			p := struct {
				Resamples int `json:"num_samples"`
			}{Resamples: defaultResamples}
			if err := decodeResamples(params, given, &p, &p.Resamples); err != nil {
				return nil, err
			}
			return func(ctx context.Context, samples []Sample) (score.Value, error) {
				means, err := resampledMeans(ctx, singletons(floats(samples)), p.Resamples)
				if err != nil {
					return score.Value{}, err
				}
				if len(means) == 0 {
					return score.Number(0), nil
				}
				// The deviation of the means themselves, over n: they are the whole distribution.
				n := float64(len(means))
				return score.Number(math.Sqrt(variance(means) * (n - 1) / n)), nil
			}, nil
		},
	}
}
