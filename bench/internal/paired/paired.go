// Package paired measures things whose figures are only meaningful relative to each other. They take turns, so that
// other load of the machine affects all of them alike, and their figures of the same round are compared:
//
//	warm-up: A B C    round 1: A B C    round 2: A B C    …        A to B = median over the rounds of A ÷ B
package paired

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Sampler measures one thing once, for about d, and returns one number above zero.
type Sampler func(ctx context.Context, d time.Duration) (float64, error)

// Table is what was measured: a row for each round, a column for each sampler in their order.
type Table [][]float64

// Measure lets the samplers take turns for n rounds, each turn of about d, after a short round that does not count. It
// fails with the first sampler that fails.
func Measure(ctx context.Context, n int, d time.Duration, samplers ...Sampler) (Table, error) {
	if _, err := round(ctx, d/4, samplers); err != nil {
		return nil, err
	}
	table := make(Table, 0, n)
	for range n {
		row, err := round(ctx, d, samplers)
		if err != nil {
			return nil, err
		}
		table = append(table, row)
	}
	return table, nil
}

var errNothing = errors.New("measured nothing")

func round(ctx context.Context, d time.Duration, samplers []Sampler) ([]float64, error) {
	row := make([]float64, 0, len(samplers))
	for i, sample := range samplers {
		x, err := sample(ctx, d)
		if err == nil && !(x > 0) {
			err = errNothing
		}
		if err != nil {
			return nil, fmt.Errorf("sampler %d: %w", i+1, err)
		}
		row = append(row, x)
	}
	return row, nil
}

// Median is the median of a column.
func (t Table) Median(column int) float64 {
	all := make([]float64, 0, len(t))
	for _, row := range t {
		all = append(all, row[column])
	}
	return Quantile(all, 0.5)
}

// Ratio is the comparison of one column with another, round by round.
type Ratio struct {
	// Median is the median of the rounds' ratios.
	Median float64 `json:"median"`
	// Low and High bound the middle half of them.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Ratio compares column a with column b, times scale.
func (t Table) Ratio(a, b int, scale float64) Ratio {
	all := make([]float64, 0, len(t))
	for _, row := range t {
		all = append(all, row[a]/(row[b]*scale))
	}
	return Ratio{Median: Quantile(all, 0.5), Low: Quantile(all, 0.25), High: Quantile(all, 0.75)}
}

// Quantile is the q-quantile of xs, 0 to 1, between the two nearest values where none is at the place; NaN where there
// are no values.
func Quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(xs))
	place := q * float64(len(sorted)-1)
	below := int(math.Floor(place))
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (place-float64(below))*(sorted[above]-sorted[below])
}
