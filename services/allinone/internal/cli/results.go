package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
)

func evalState(e *agentv1.Eval) string { return enum.Word(e.GetState()) }

// stateInterrupted is shown for what has not ended and has no server that drives it.
const stateInterrupted = "interrupted"

// evalState is an evaluation's state as people see it.
func (s *session) evalState(e *agentv1.Eval) string {
	if s.idle && !ended(e) && e.GetState() != agentv1.EvalState_EVAL_STATE_PAUSED {
		return stateInterrupted
	}
	return evalState(e)
}

func ended(e *agentv1.Eval) bool {
	switch e.GetState() {
	case agentv1.EvalState_EVAL_STATE_SUCCEEDED, agentv1.EvalState_EVAL_STATE_FAILED, agentv1.EvalState_EVAL_STATE_CANCELLED:
		return true
	default:
		return false
	}
}

// models names the models of an evaluation.
func models(spec *agentv1.EvalSpec) string {
	var names []string
	for _, m := range spec.GetModels() {
		names = append(names, m.GetModel())
	}
	return dash(strings.Join(names, ", "))
}

// headline is the first metric of an evaluation.
func headline(e *agentv1.Eval) string {
	for _, s := range e.GetResults().GetScores() {
		for _, m := range s.GetMetrics() {
			return m.GetKey() + " " + number(m.Value)
		}
	}
	return "–"
}

// number writes the value of a metric; a dash where there is none.
func number(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

// showEval writes all details of an evaluation, and which logs of it were written.
func (s *session) showEval(ctx context.Context, e *agentv1.Eval, logs []string) error {
	a, id := s.app, short(e.GetName())
	a.print("%s · %s · %s", e.GetName(), e.GetSpec().GetTask(), s.evalState(e))
	if e.GetStateReason() != "" {
		a.print("  %s", e.GetStateReason())
	}
	if err := e.GetError(); err != nil {
		a.print("  %s: %s", err.GetReason(), err.GetMessage())
	}
	a.print("model %s · %s", models(e.GetSpec()), s.facts(e))
	switch n := len(e.GetWarnings()); {
	case !s.warned:
		for _, w := range e.GetWarnings() {
			a.print("  warning: %s", w.GetMessage())
		}
	case n == 1:
		a.print("  1 warning, see above")
	case n > 1:
		a.print("  %d warnings, see above", n)
	}
	for _, wait := range progress.Waits(e.GetProgress()) {
		a.print("  %s", wait)
	}
	if n := e.GetProgress().GetLostModelCalls(); n > 0 {
		a.print("  %s", progress.Lost(n))
	}
	if scores := e.GetResults().GetScores(); len(scores) > 0 {
		a.print("")
		a.showScores(scores)
	}
	if err := errors.Join(s.showScoresSoFar(ctx, e), s.showAtWork(ctx, e)); err != nil {
		return err
	}
	if len(e.GetUsage()) > 1 {
		a.print("")
		var rows [][]string
		for _, model := range slices.Sorted(maps.Keys(e.GetUsage())) {
			u := e.GetUsage()[model]
			rows = append(rows, []string{model, progress.Count(chat.InputTokens(u)), progress.Count(u.GetOutputTokens()), progress.Count(u.GetTotalTokens())})
		}
		a.table([]string{"model", "tokens in", "out", "all"}, rows)
	}
	if e.GetProgress().GetFailed() > 0 || e.GetProgress().GetSandboxFaults() > 0 {
		if err := s.showFailures(ctx, e); err != nil {
			return err
		}
	}
	a.print("")
	a.print("log       %s", a.next("logs %s", id))
	if p := e.GetProgress(); e.GetState() != agentv1.EvalState_EVAL_STATE_SUCCEEDED && (p.GetFailed() > 0 || p.GetSandboxFaults() > 0) {
		a.print("          %s", a.next("logs %s --failed", id))
	}
	a.showLogs(logs)
	switch e.GetState() {
	case agentv1.EvalState_EVAL_STATE_PENDING, agentv1.EvalState_EVAL_STATE_RUNNING:
		if s.idle {
			a.print("go on     %s, or", s.resume(id))
			a.print("          %s", a.next("serve"))
		}
	case agentv1.EvalState_EVAL_STATE_FAILED, agentv1.EvalState_EVAL_STATE_CANCELLED, agentv1.EvalState_EVAL_STATE_PAUSED:
		a.print("go on     %s", s.resume(id))
	case agentv1.EvalState_EVAL_STATE_SUCCEEDED:
		if e.GetProgress().GetFailed() > 0 {
			a.print("go on     %s", s.resume(id))
		}
		s.showNext(ctx, e)
	default: // Unspecified.
	}
	return nil
}

// resume is the command that continues an evaluation, with its logs in the same place.
func (s *session) resume(id string) string {
	return s.app.next("%s", strings.Join(append([]string{"eval resume", id}, s.logFlags...), " "))
}

// showFailures shows why samples failed, or continued without their sandbox: the most common reasons with an example of
// each.
func (s *session) showFailures(ctx context.Context, e *agentv1.Eval) error {
	var states []agentv1.RunState
	if e.GetProgress().GetSandboxFaults() == 0 {
		states = []agentv1.RunState{agentv1.RunState_RUN_STATE_FAILED}
	}
	samples, err := s.samples(ctx, e.GetName(), states...)
	if err != nil {
		return err
	}
	type failure struct {
		text, what, example string
		count               int
	}
	var all []*failure
	add := func(sample *agentv1.EvalSample, what, text string) {
		i := slices.IndexFunc(all, func(f *failure) bool { return f.what == what && f.text == text })
		if i < 0 {
			i = len(all)
			all = append(all, &failure{text: text, what: what, example: sample.GetId()})
		}
		all[i].count++
	}
	for _, sample := range samples {
		switch err, fault := sample.GetError(), sample.GetSandboxFault(); {
		case sample.GetState() == agentv1.RunState_RUN_STATE_FAILED:
			add(sample, "failed", err.GetReason()+": "+err.GetMessage())
		case fault != "":
			add(sample, "went on without a sandbox", sandboxName.ReplaceAllString(fault, "…"))
		}
	}
	slices.SortStableFunc(all, func(a, b *failure) int { return b.count - a.count })
	s.app.print("")
	const most = 3
	for _, f := range all[:min(most, len(all))] {
		s.app.print("%d %s, such as %s: %s", f.count, f.what, f.example, f.text)
	}
	if more := len(all) - most; more > 0 {
		s.app.print("and for %d other reasons", more)
	}
	return nil
}

// sandboxName is what differs from sample to sample in one and the same fault.
var sandboxName = regexp.MustCompile(`projects/[^/ ]+/sandboxes/\S+|\bsb-\w+`)

// facts are samples, time, tokens and money in a line.
func (s *session) facts(e *agentv1.Eval) string {
	p := e.GetProgress()
	atWork := "running"
	if s.idle && !ended(e) {
		atWork = stateInterrupted
	}
	parts := []string{progress.Several(p.GetTotal(), "sample", "samples")}
	failed := p.GetFailed()
	switch done := progress.Done(p); {
	case done == p.GetTotal():
		if failed > 0 {
			parts = append(parts, fmt.Sprintf("%d failed", failed))
		}
	case failed > 0:
		parts = append(parts, fmt.Sprintf("%d done, %d of them failed", done, failed))
	default:
		parts = append(parts, fmt.Sprintf("%d done", done))
	}
	for _, c := range []struct {
		n    int32
		what string
	}{{p.GetPending(), "not begun"}, {p.GetRunning(), atWork}, {p.GetWaiting(), "waiting"}, {p.GetLimited(), "at a limit"}, {p.GetCancelled(), "cancelled"}, {p.GetSandboxFaults(), "without a sandbox"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if e.GetStartTime() != nil && e.GetEndTime() != nil {
		parts = append(parts, duration(e))
	}
	parts = append(parts, progress.Count(p.GetTotalTokens())+" tokens")
	if p.TotalCost != nil {
		parts = append(parts, progress.Cost(p.GetTotalCost(), p.GetCostPartial()))
	}
	return strings.Join(parts, " · ")
}

// duration is how long an evaluation took. What passed between an end and its resumption is apart.
func duration(e *agentv1.Eval) string {
	all, paused := e.GetEndTime().AsTime().Sub(e.GetStartTime().AsTime()), e.GetPausedTime().AsDuration()
	took := (all - paused).Round(100 * time.Millisecond).String()
	if paused > 0 {
		took += ", without " + paused.Round(100*time.Millisecond).String() + " before it was resumed"
	}
	return took
}

// showScores writes a row per scorer, reducer and model, with a column for every metric that one of them has.
func (a *app) showScores(scores []*agentv1.ScoreResult) {
	var metrics []string
	severalModels, severalReducers := false, false
	for _, s := range scores {
		severalModels = severalModels || s.GetModel() != ""
		severalReducers = severalReducers || s.Reducer != nil
		for _, m := range s.GetMetrics() {
			if !slices.Contains(metrics, m.GetKey()) {
				metrics = append(metrics, m.GetKey())
			}
		}
	}
	head := []string{"scorer", "samples"}
	if severalModels {
		head = slices.Insert(head, 0, "model")
	}
	if severalReducers {
		head = append(head, "reducer")
	}
	var rows, listed [][]string
	for _, s := range scores {
		row := []string{s.GetName(), fmt.Sprint(s.GetScoredSamples())}
		if severalModels {
			row = slices.Insert(row, 0, s.GetModel())
		}
		if severalReducers {
			row = append(row, dash(s.GetReducer()))
		}
		for _, m := range s.GetMetrics() {
			listed = append(listed, append(slices.Clone(row), m.GetKey(), number(m.Value)))
		}
		for _, key := range metrics {
			cell := ""
			for _, m := range s.GetMetrics() {
				if m.GetKey() == key {
					cell = number(m.Value)
				}
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	if wide := append(slices.Clone(head), metrics...); a.fits(wide, rows) {
		a.table(wide, rows)
	} else {
		a.table(append(head, "metric", "value"), listed)
	}
}
