// Package report has the results of measurements and shows them: as a table for people, as JSON, and as the section of
// results in a Markdown document.
package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
)

// Report is one run of benchmarks on one machine.
type Report struct {
	Date       time.Time   `json:"date"`
	Machine    Machine     `json:"machine"`
	Took       string      `json:"took"`
	Benchmarks []Benchmark `json:"benchmarks"`
}

// Benchmark is one benchmark with its figures.
type Benchmark struct {
	Name string `json:"name"`
	// Title is a short name of the measurement.
	Title string `json:"title"`
	// How describes the measurement: a paragraph in Markdown.
	How     string   `json:"how"`
	Figures []Figure `json:"figures"`
	// NotRun is the reason why there are no figures; empty if there are.
	NotRun string `json:"notRun,omitempty"`
}

// Figure is one thing measured, beside what it was measured against.
type Figure struct {
	// Name names the subject and its baseline.
	Name     string `json:"name"`
	Baseline string `json:"baseline"`
	// Measured and BaselineMeasured are medians over the rounds, in Unit.
	Measured         float64 `json:"measured"`
	BaselineMeasured float64 `json:"baselineMeasured"`
	Unit             string  `json:"unit"`
	// Ratio is Measured to BaselineMeasured, round by round.
	Ratio paired.Ratio `json:"ratio"`
	Goals []Goal       `json:"goals,omitempty"`
	// Means explains the figure to operators, in one or two sentences.
	Means string `json:"means"`
}

// Goal is what a figure was asked to be.
type Goal struct {
	// Bound is the text of the bound, such as `ratio ≤ 1.5`.
	Bound string `json:"bound"`
	Met   bool   `json:"met"`
	// Aim marks a goal for the future, which the current state need not reach.
	Aim bool `json:"aim"`
}

// AtMost is a goal that ratio keeps under a bound.
func AtMost(ratio paired.Ratio, bound float64) Goal {
	return Goal{Bound: "ratio ≤ " + strconv.FormatFloat(bound, 'g', -1, 64), Met: ratio.Median <= bound}
}

// AtLeast is a goal that ratio reaches a bound.
func AtLeast(ratio paired.Ratio, bound float64) Goal {
	return Goal{Bound: "ratio ≥ " + strconv.FormatFloat(bound, 'g', -1, 64), Met: ratio.Median >= bound}
}

// Reaches is a goal that a measured value reaches a bound.
func Reaches(measured, bound float64, unit string) Goal {
	return Goal{Bound: "≥ " + amount(bound, unit), Met: measured >= bound}
}

// Within is a goal that a measured value keeps under a bound.
func Within(measured, bound float64, unit string) Goal {
	return Goal{Bound: "≤ " + amount(bound, unit), Met: measured <= bound}
}

// AsAim makes a goal an aim.
func (g Goal) AsAim() Goal {
	g.Aim = true
	return g
}

// String returns the goal and whether it is met.
func (g Goal) String() string {
	kind, verdict := "", "**not met**"
	if g.Aim {
		kind, verdict = "aim ", "not yet"
	}
	if g.Met {
		verdict = "met"
	}
	return kind + g.Bound + ": " + verdict
}

// Missed counts goals that are not met; aims do not count.
func (r Report) Missed() int {
	n := 0
	for _, b := range r.Benchmarks {
		for _, f := range b.Figures {
			for _, g := range f.Goals {
				if !g.Met && !g.Aim {
					n++
				}
			}
		}
	}
	return n
}

// amount writes a value with three significant digits and its unit.
func amount(x float64, unit string) string {
	s := strconv.FormatFloat(x, 'f', -1, 64)
	switch {
	case x >= 1000:
		s = thousands(int64(x + 0.5))
	case x >= 100:
		s = strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		s = trim(strconv.FormatFloat(x, 'f', 1, 64))
	case x > 0:
		s = trim(strconv.FormatFloat(x, 'g', 3, 64))
	}
	if strings.HasPrefix(unit, "/") {
		return s + unit
	}
	return s + " " + unit
}

func trim(s string) string {
	if strings.Contains(s, ".") && !strings.Contains(s, "e") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

func ratio(r paired.Ratio) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", r.Median, r.Low, r.High)
}
