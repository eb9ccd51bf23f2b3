// Package progress shows the progress of an evaluation: live in a terminal, as lines in a pipe.
package progress

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
	"github.com/evalfleet/evalfleet/services/allinone/internal/transcript"
)

// View shows the progress of an evaluation. It is not safe for concurrent use.
type View interface {
	// Show shows the current state.
	Show(s *State)
	// Close leaves the last state on the screen.
	Close()
}

// State is what is known of an evaluation so far.
type State struct {
	start   time.Time
	eval    *agentv1.Eval
	notes   []*agentv1.RunNote
	running []*agentv1.EvalSample
	means   Means
	// finished are scores of samples that the progress does not count yet: it follows the events.
	finished []*agentv1.NamedScore
}

// Means are the means of scorers' values so far.
type Means []Mean

// Mean is the mean of one scorer's values.
type Mean struct {
	Name  string
	Sum   float64
	Count int
}

// Value is the mean.
func (m Mean) Value() float64 { return m.Sum / float64(m.Count) }

// NewState begins to follow eval. Its clock began at start.
func NewState(eval *agentv1.Eval, start time.Time) *State { return &State{start: start, eval: eval} }

// Eval returns the evaluation as it was last seen.
func (s *State) Eval() *agentv1.Eval { return s.eval }

// Observe takes in what a watch of the evaluation said.
func (s *State) Observe(r *agentv1.WatchEvalResponse) {
	s.finished = append(s.finished, r.GetEvent().GetSampleFinished().GetContent().GetScores()...)
	if p := r.GetProgress(); p != nil {
		s.eval, s.notes, s.running = p, r.GetNotes(), r.GetRunning()
		for _, score := range s.finished {
			s.means.Add(score)
		}
		s.finished = nil
	}
}

// Add takes a score into its mean. Values that are no grade and no number have none.
func (m *Means) Add(n *agentv1.NamedScore) {
	value, ok := numeric(n.GetScore().GetValue())
	if !ok {
		return
	}
	for i := range *m {
		if mean := &(*m)[i]; mean.Name == n.GetName() {
			mean.Sum += value
			mean.Count++
			return
		}
	}
	*m = append(*m, Mean{Name: n.GetName(), Sum: value, Count: 1})
}

// numeric is the number that a metric would take: grades count 1, ½ and 0.
func numeric(v *agentv1.ScoreValue) (float64, bool) {
	switch k := v.GetKind().(type) {
	case *agentv1.ScoreValue_Number:
		return k.Number, k.Number == k.Number // Not a number means unscored.
	case *agentv1.ScoreValue_Flag:
		if k.Flag {
			return 1, true
		}
		return 0, true
	case *agentv1.ScoreValue_Text:
		value, ok := map[string]float64{"C": 1, "P": 0.5, "I": 0, "N": 0}[k.Text]
		return value, ok
	}
	return 0, false
}

// Done is the number of samples that came to their end, by an error too. Those that a limit ended are among the
// succeeded ones; cancelled ones are not done.
func Done(p *agentv1.EvalProgress) int32 { return p.GetSucceeded() + p.GetFailed() }

// Waits describes what samples wait for, and since when.
func Waits(p *agentv1.EvalProgress) []string {
	var all []string
	for _, w := range p.GetWaits() {
		line := fmt.Sprintf("%d waiting since %s: %s", w.GetSamples(), w.GetSince().AsTime().Local().Format(time.TimeOnly), w.GetMessage())
		if w.GetReason() == agentv1.WaitReason_WAIT_REASON_DECISION {
			line += " (evalfleet run resume RUN; evalfleet run list --active shows them)"
		}
		all = append(all, line)
	}
	return all
}

// counts returns the numbers of samples by outcome; zeros are left out, except the first.
func (s *State) counts() string {
	p := s.eval.GetProgress()
	parts := []string{fmt.Sprintf("%d/%d done", Done(p), p.GetTotal())}
	for _, c := range []struct {
		n    int32
		what string
	}{{p.GetRunning(), "running"}, {p.GetFailed(), "failed"}, {p.GetLimited(), "at a limit"}, {p.GetCancelled(), "cancelled"}, {p.GetSandboxFaults(), "without a sandbox"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(append(parts, Waits(p)...), " · ")
}

// costs returns tokens, money if it is known, time, and the means so far.
func (s *State) costs() string {
	p := s.eval.GetProgress()
	parts := []string{Count(p.GetTotalTokens()) + " tokens"}
	if p.TotalCost != nil {
		parts = append(parts, Cost(p.GetTotalCost(), p.GetCostPartial()))
	}
	parts = append(parts, clock(time.Since(s.start)))
	for _, m := range s.means {
		parts = append(parts, fmt.Sprintf("%s %.3f so far", m.Name, m.Value()))
	}
	return strings.Join(parts, " · ")
}

// open describes the open effects, the latest first, in at most so many lines.
func (s *State) open(most int) []string {
	var lines []string
	for i, n := range s.notes {
		if i == most {
			lines[i-1] += fmt.Sprintf(" · and %d more", len(s.notes)-most)
			break
		}
		of := n.GetSample()
		if of == "" {
			of = path.Base(n.GetRun())
		}
		if n.GetEpoch() > 1 {
			of += fmt.Sprintf(", epoch %d", n.GetEpoch())
		}
		lines = append(lines, of+": "+transcript.NoteText(n.GetNote()))
	}
	return lines
}

// samples shows samples at work in at most so many lines: what each has used, and what it does or waits for.
func (s *State) samples(most int) []string {
	shown := s.running[:min(most, len(s.running))]
	wide := 0
	for _, r := range shown {
		wide = max(wide, text.StringWidthWithoutEscSequences(label(r)))
	}
	var lines []string
	for _, r := range shown {
		parts := []string{text.Pad(label(r), wide, ' ')}
		if r.GetStartTime() != nil {
			parts = append(parts, clock(time.Since(r.GetStartTime().AsTime())))
		}
		parts = append(parts, Several(r.GetTurns(), "turn", "turns"), Count(r.GetUsage().GetTotalTokens())+" tokens")
		if r.GetRetries() > 0 {
			parts = append(parts, Several(r.GetRetries(), "retry", "retries"))
		}
		if doing := Doing(r.GetWait(), r.GetNote(), r.GetActivity()); doing != "" {
			parts = append(parts, doing)
		}
		lines = append(lines, strings.Join(parts, " · "))
	}
	if more := int(s.eval.GetProgress().GetRunning()) - len(shown); more > 0 && len(shown) > 0 {
		lines = append(lines, fmt.Sprintf("and %d more at work", more))
	}
	return lines
}

// label names a sample in little room.
func label(r *agentv1.EvalSample) string {
	name := text.Snip(printable.Line(r.GetId()), 24, "…")
	if r.GetEpoch() > 1 {
		name += fmt.Sprintf(", epoch %d", r.GetEpoch())
	}
	return name
}

// Doing describes in one line what a run does now: what it waits for, or else which effects are open, with the details
// of one.
func Doing(wait *agentv1.RunWait, note *effectv1.Note, activity string) string {
	switch {
	case wait != nil:
		return "waits for " + enum.Word(wait.GetReason()) + ": " + wait.GetMessage()
	case note != nil && activity != "":
		return activity + ": " + transcript.NoteText(note)
	case note != nil:
		return transcript.NoteText(note)
	}
	return activity
}

// Several writes a number of things: 1 turn, 2 turns.
func Several(n int32, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Count writes a number of things for people: 950, 12.3k, 4.5M.
func Count(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 999_950:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

// Cost writes a sum of dollars, as a lower bound where it is partial, since the price of a model is not known.
func Cost(total float64, partial bool) string {
	if partial {
		return "≥ " + Dollars(total)
	}
	return Dollars(total)
}

// Lost reports that model calls were lost with the process that made them, which sums of tokens and money cannot show.
func Lost(calls int32) string {
	if calls == 1 {
		return "1 model call was lost with its process; what it cost is not known and in no sum"
	}
	return fmt.Sprintf("%d model calls were lost with their processes; what they cost is not known and in no sum", calls)
}

// Dollars writes an amount of money, small ones to a hundredth of a cent.
func Dollars(d float64) string {
	if d != 0 && d < 0.1 {
		return fmt.Sprintf("$%.4f", d)
	}
	return fmt.Sprintf("$%.2f", d)
}

// clock writes a duration as on a stopwatch.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
