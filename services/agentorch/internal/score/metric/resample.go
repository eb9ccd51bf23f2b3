package metric

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

// The default number of resamples, and the maximum that a task may request.
const (
	defaultResamples = 1000
	maxResamples     = 100_000
)

var resamplesParam = param.Param{
	Name: "num_samples", Type: param.Integer, Default: json.RawMessage("1000"), Description: "How often to resample, 1 to 100000.",
}

// decodeResamples reads parameters into p, and checks the number of resamples.
func decodeResamples(params param.List, given json.RawMessage, p any, resamples *int) error {
	if err := params.Decode(given, p); err != nil {
		return err
	}
	if *resamples < 1 || *resamples > maxResamples {
		return param.Invalid("num_samples", "must be 1 to %d", maxResamples)
	}
	return nil
}

// The seed of all resampling. Any other would do as well; a fixed one makes results repeatable.
const seedHigh, seedLow = 0x6576616c, 0x666c6565

// resampledMeans draws whole clusters with replacement, as many as there are, and returns the mean of each draw.
// Without clusters it returns none. It stops when ctx ends.
func resampledMeans(ctx context.Context, clusters [][]float64, resamples int) ([]float64, error) {
	if len(clusters) == 0 {
		return nil, nil
	}
	random := rand.New(rand.NewPCG(seedHigh, seedLow)) //nolint:gosec // statistics, not secrets
	means := make([]float64, resamples)
	for i := range means {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sum, n := 0.0, 0
		for range clusters {
			cluster := clusters[random.IntN(len(clusters))]
			for _, f := range cluster {
				sum += f
			}
			n += len(cluster)
		}
		means[i] = sum / float64(n)
	}
	return means, nil
}

// quantile interpolates linearly between the sorted values next to rank p·(n-1).
func quantile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	rank := p * float64(len(sorted)-1)
	below := math.Floor(rank)
	low, high := sorted[int(below)], sorted[int(math.Ceil(rank))]
	return low + (rank-below)*(high-low)
}
