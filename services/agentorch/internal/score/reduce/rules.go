package reduce

import (
	"slices"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// rule reduces the scored values of one scalar, of which there is at least one. K is the reducer's count; all also
// counts the unscored epochs.
type rule func(values []score.Value, k, all int) score.Value

// success is the number from which on an epoch counts as a success.
const success = 1

func floats(values []score.Value) []float64 {
	numbers := make([]float64, len(values))
	for i, v := range values {
		numbers[i], _ = v.Float()
	}
	return numbers
}

func successes(values []score.Value) int {
	n := 0
	for _, f := range floats(values) {
		if f >= success {
			n++
		}
	}
	return n
}

func mean(values []score.Value, _, _ int) score.Value {
	sum := 0.0
	for _, f := range floats(values) {
		sum += f
	}
	return score.Number(sum / float64(len(values)))
}

func median(values []score.Value, _, _ int) score.Value {
	numbers := floats(values)
	slices.Sort(numbers)
	middle := len(numbers) / 2
	if len(numbers)%2 == 1 {
		return score.Number(numbers[middle])
	}
	return score.Number((numbers[middle-1] + numbers[middle]) / 2)
}

// mostFrequent returns the value that occurs most often, the first one of several, and how often.
func mostFrequent(values []score.Value) (score.Value, int) {
	counts := map[score.Scalar]int{}
	for _, v := range values {
		counts[v.Scalar()]++
	}
	best, bestCount := values[0], 0
	for _, v := range values {
		if count := counts[v.Scalar()]; count > bestCount {
			best, bestCount = v, count
		}
	}
	return best, bestCount
}

func mode(values []score.Value, _, _ int) score.Value {
	v, _ := mostFrequent(values)
	return v
}

func majority(values []score.Value, _, all int) score.Value {
	if v, count := mostFrequent(values); count*2 > all {
		return v
	}
	return score.Unscored()
}

func greatest(values []score.Value, _, _ int) score.Value {
	numbers := floats(values)
	return values[slices.Index(numbers, slices.Max(numbers))]
}

func atLeast(values []score.Value, k, _ int) score.Value {
	if successes(values) >= k {
		return score.Integer(1)
	}
	return score.Integer(0)
}

// passAt is the unbiased estimator 1 - C(n-c, k) / C(n, k) for c successes of n epochs (Chen et al. 2021,
// arXiv:2107.03374).
func passAt(values []score.Value, k, _ int) score.Value {
	n := len(values)
	if n < k {
		return score.Unscored()
	}
	return score.Number(1 - drawn(n-successes(values), n, k))
}

// passAll is the estimator C(c, k) / C(n, k) for c successes of n epochs (Yao et al. 2024, arXiv:2406.12045).
func passAll(values []score.Value, k, _ int) score.Value {
	n := len(values)
	if n < k {
		return score.Unscored()
	}
	return score.Number(drawn(successes(values), n, k))
}

// drawn is the probability C(c, k) / C(n, k) that k draws without replacement from n all hit the c marked ones.
func drawn(c, n, k int) float64 {
	p := 1.0
	for i := range k {
		p *= float64(max(c-i, 0)) / float64(n-i)
	}
	return p
}
