package metric

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

func intervalDefinitions() []Definition { return []Definition{ciDefinition(), wilsonDefinition()} }

var levelParam = param.Param{
	Name: "level", Type: param.Number, Default: json.RawMessage("0.95"), Description: "Confidence of the interval, between 0 and 1.",
}

func checkLevel(level float64) error {
	if 0 < level && level < 1 {
		return nil
	}
	return param.Invalid("level", "must lie between 0 and 1, as 0.95 does")
}

func bounds(lower, upper float64) score.Value {
	return score.Map(score.Entry{Key: "lower", Value: score.Number(lower)}, score.Entry{Key: "upper", Value: score.Number(upper)})
}

// ci holds the parameters of the metric of that name.
type ci struct {
	Level     float64 `json:"level"`
	Method    string  `json:"method"`
	Resamples int     `json:"num_samples"`
	Cluster   *string `json:"cluster"`
}

func ciDefinition() Definition {
	params := param.List{
		levelParam,
		{
			Name: "method", Type: param.String, Default: json.RawMessage(`"t"`), Enum: []string{`"t"`, `"bootstrap"`},
			Description: "Student's t around the standard error, or quantiles of resampled means.",
		},
		resamplesParam,
		clusterParam,
	}
	return Definition{
		Name:        "ci",
		Description: "A two-sided confidence interval of the mean, as lower and upper; a point for fewer than two values.",
		Params:      params,
		Check:       clustered("ci"),
		New: func(given json.RawMessage) (Func, error) {
			p := ci{Level: 0.95, Method: "t", Resamples: defaultResamples}
			if err := decodeResamples(params, given, &p, &p.Resamples); err != nil {
				return nil, err
			}
			if err := checkLevel(p.Level); err != nil {
				return nil, err
			}
			return p.compute, nil
		},
	}
}

func (p ci) compute(ctx context.Context, samples []Sample) (score.Value, error) {
	values := floats(samples)
	clusters := singletons(values)
	spread := standardError(values)
	if p.Cluster != nil {
		var err error
		if clusters, err = partition("ci", *p.Cluster, samples); err != nil {
			return score.Value{}, err
		}
		spread = clusteredError(clusters)
	}
	m := mean(values)
	if len(values) < 2 {
		return bounds(m, m), nil
	}
	tail := (1 - p.Level) / 2
	if p.Method == "bootstrap" {
		means, err := resampledMeans(ctx, clusters, p.Resamples)
		if err != nil {
			return score.Value{}, err
		}
		return bounds(quantile(means, tail), quantile(means, 1-tail)), nil
	}
	half := studentQuantile(1-tail, float64(max(len(clusters)-1, 1))) * spread
	return bounds(m-half, m+half), nil
}

// wilson holds the parameters of ci_wilson.
type wilson struct {
	Level   float64 `json:"level"`
	Cluster *string `json:"cluster"`
}

func wilsonDefinition() Definition {
	params := param.List{levelParam, clusterParam}
	return Definition{
		Name:        "ci_wilson",
		Description: "Wilson's score interval of a share, as lower and upper, for values from 0 to 1.",
		Params:      params,
		Check:       clustered("ci_wilson"),
		New: func(given json.RawMessage) (Func, error) {
			p := wilson{Level: 0.95}
			if err := params.Decode(given, &p); err != nil {
				return nil, err
			}
			if err := checkLevel(p.Level); err != nil {
				return nil, err
			}
			return p.compute, nil
		},
	}
}

func (p wilson) compute(_ context.Context, samples []Sample) (score.Value, error) {
	values := floats(samples)
	for i, f := range values {
		if !(0 <= f && f <= 1) { // NaN lies nowhere
			return score.Value{}, fmt.Errorf("metric ci_wilson: sample %s has the value %v: it takes values from 0 to 1; use ci for others", samples[i].ID, f)
		}
	}
	tail := (1 - p.Level) / 2
	n, share := float64(len(values)), mean(values)
	critical := normalQuantile(1 - tail)
	if p.Cluster != nil {
		clusters, err := partition("ci_wilson", *p.Cluster, samples)
		if err != nil {
			return score.Value{}, err
		}
		if len(clusters) < 2 {
			return score.Value{}, fmt.Errorf("metric ci_wilson: metadata %q names %d clusters: at least two are needed", *p.Cluster, len(clusters))
		}
		n = effectiveSize(share, n, clusteredError(clusters))
		critical = studentQuantile(1-tail, float64(len(clusters)-1))
	}
	if len(values) == 0 {
		return bounds(0, 0), nil
	}
	square := critical * critical / n
	center := (share + square/2) / (1 + square)
	half := critical * math.Sqrt(share*(1-share)/n+square/(4*n)) / (1 + square)
	return bounds(max(center-half, 0), min(center+half, 1)), nil
}

// effectiveSize is the number of independent values that would give a share this standard error, at most n (Korn and
// Graubard 1998). It is n if the error does not determine it.
func effectiveSize(share, n, clustered float64) float64 {
	spread := share * (1 - share)
	if spread <= 0 || clustered <= 0 {
		return n
	}
	return min(spread/(clustered*clustered), n)
}
