package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
	"github.com/evalfleet/evalfleet/services/allinone/internal/transcript"
)

func runState(r *agentv1.Run) string {
	if r.GetCancelling() {
		return "cancelling"
	}
	return transcript.RunStateText(r.GetState())
}

// runState is a run's state as people see it.
func (s *session) runState(r *agentv1.Run) string {
	if s.idle && r.GetEndTime() == nil && !undecided(r.GetWait()) {
		return stateInterrupted
	}
	return runState(r)
}

// undecided reports whether a run waits for a person to resume or cancel it.
func undecided(wait *agentv1.RunWait) bool {
	return wait.GetReason() == agentv1.WaitReason_WAIT_REASON_DECISION
}

// activeRuns are the states of runs that have not ended.
var activeRuns = []agentv1.RunState{
	agentv1.RunState_RUN_STATE_PENDING, agentv1.RunState_RUN_STATE_RUNNING, agentv1.RunState_RUN_STATE_WAITING, agentv1.RunState_RUN_STATE_SCORING,
}

// begunRuns are those of them in which something was done.
var begunRuns = activeRuns[1:]

func (a *app) runListCommand() *cobra.Command {
	var limit int
	var active bool
	var eval string
	c := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Example: `  evalfleet run list
  evalfleet run list --active --eval EVAL`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				req := &agentv1.ListRunsRequest{Parent: a.parent()}
				if active {
					req.States = activeRuns
				}
				if eval != "" {
					name, err := s.name(ctx, evals, eval)
					if err != nil {
						return err
					}
					req.Eval = name
				}
				listed, err := page(limit, func(token string) ([]*agentv1.Run, string, error) {
					req.PageToken = token
					r, err := s.runs.ListRuns(ctx, req)
					return r.GetRuns(), r.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				return s.showRuns(listed)
			})
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 20, "show at most so many; 0 shows all")
	c.Flags().BoolVar(&active, "active", false, "only those that have not ended")
	c.Flags().StringVar(&eval, "eval", "", "only those of this evaluation")
	a.completeFlag(c, "eval", offerEvals, nil)
	return c
}

func (s *session) showRuns(listed []*agentv1.Run) error {
	a := s.app
	var rows [][]string
	interrupted, waiting := false, ""
	for _, r := range listed {
		if a.json {
			if err := a.emit(r); err != nil {
				return err
			}
			continue
		}
		state := s.runState(r)
		interrupted = interrupted || state == stateInterrupted
		if undecided(r.GetWait()) && waiting == "" {
			waiting = short(r.GetName())
		}
		if w := r.GetWait(); w != nil && state != stateInterrupted {
			state += " for " + enum.Word(w.GetReason())
		}
		rows = append(rows, []string{
			short(r.GetName()), r.GetSpec().GetModel().GetModel(), state, fmt.Sprint(r.GetTurns()), progress.Count(totalTokens(r)), fmt.Sprint(r.GetRetries()), when(r.GetCreateTime()), s.doing(r.GetWait(), r.GetNote(), r.GetActivity()),
		})
	}
	switch {
	case a.json:
	case len(rows) == 0:
		a.note("no runs; evalfleet run --model PROVIDER/MODEL PROMPT makes one")
	default:
		a.table([]string{"run", "model", "state", "turns", "tokens", "retries", "made", "now"}, rows)
	}
	if interrupted {
		a.note("\nno server drives what is interrupted; %s continues it", a.next("serve"))
	}
	if waiting != "" && !a.json {
		a.note("\na run waits for a decision: %s continues it, %s ends it", a.next("run resume %s", waiting), a.next("run cancel %s", waiting))
	}
	return nil
}

func totalTokens(r *agentv1.Run) int64 {
	var n int64
	for _, u := range r.GetUsage() {
		n = chat.SumTokens(n, u.GetTotalTokens())
	}
	return n
}

// cost is what a run cost, with a mark where a model that it used has no price; empty where none has one.
func cost(r *agentv1.Run) string {
	var total float64
	known := false
	for _, u := range r.GetUsage() {
		total = chat.SumCost(total, u.GetTotalCost())
		known = known || u.TotalCost != nil
	}
	if !known {
		return ""
	}
	return " · " + progress.Cost(total, chat.CostPartial(slices.Collect(maps.Values(r.GetUsage()))...))
}

func (a *app) runShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show RUN",
		ValidArgsFunction: a.completeFirst(offerRuns()),
		Short:             "Show a run: state, scores, costs, answer",
		Example: `  evalfleet run show RUN
  evalfleet run show RUN --json | jq .messages`,
		Args: one("a run; evalfleet run list shows them"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				name, err := s.name(ctx, runs, args[0])
				if err != nil {
					return err
				}
				r, err := s.runs.GetRun(ctx, &agentv1.GetRunRequest{Name: name, View: agentv1.RunView_RUN_VIEW_FULL})
				if err != nil {
					return err
				}
				if a.json {
					return a.emit(r)
				}
				s.showRun(r)
				return nil
			})
		},
	}
}

func (s *session) showRun(r *agentv1.Run) {
	a := s.app
	a.print("%s · %s", r.GetName(), s.runState(r))
	a.print("model %s · %d turns · %d messages · %s tokens%s · %d retries · working %s", dash(r.GetSpec().GetModel().GetModel()), r.GetTurns(), r.GetMessageCount(),
		progress.Count(totalTokens(r)), cost(r), r.GetRetries(), r.GetWorkingTime().AsDuration().Round(10*time.Millisecond))
	for _, w := range r.GetWarnings() {
		a.print("  warning: %s", w.GetMessage())
	}
	if n := r.GetLostModelCalls(); n > 0 {
		a.print("%s", progress.Lost(n))
	}
	if w := r.GetWait(); w != nil {
		a.print("waits for %s: %s", enum.Word(w.GetReason()), w.GetMessage())
		if id := short(r.GetName()); undecided(w) {
			a.print("%s continues it, %s ends it", a.next("run resume %s", id), a.next("run cancel %s", id))
		}
	} else if now := s.doing(nil, r.GetNote(), r.GetActivity()); now != "" && !s.idle {
		a.print("now  %s", now)
	}
	if l := r.GetLimit(); l != nil {
		a.print("ended by the %s limit: %s", l.GetType(), l.GetMessage())
	}
	if e := r.GetError(); e != nil {
		a.print("%s: %s", e.GetReason(), e.GetMessage())
	}
	for _, s := range r.GetScores() {
		a.print("score %s %s", s.GetName(), transcript.ScoreText(s.GetScore().GetValue()))
	}
	if text := strings.TrimSpace(chat.Completion(r.GetOutput())); text != "" {
		a.print("\n%s", lines(text))
	}
	if s.runState(r) == stateInterrupted {
		a.print("\nno server drives it; %s continues it", a.next("serve"))
	}
	a.print("\nlog  %s", a.next("logs %s", short(r.GetName())))
}

func (a *app) runCancelCommand() *cobra.Command {
	var reason, mode string
	c := &cobra.Command{
		Use:               "cancel RUN...",
		ValidArgsFunction: a.complete(offerRuns(activeRuns...)),
		Short:             "End runs; nothing starts after that",
		Example: `  evalfleet run cancel RUN --reason "stuck"
  evalfleet run cancel RUN --mode error`,
		Args: some("a run; evalfleet run list --active shows those that have not ended"),
		RunE: func(c *cobra.Command, args []string) error {
			as, known := enum.Parse[agentv1.CancelMode](mode)
			if !known || mode == "" {
				return usage("--mode is %q; want cancel, score or error", mode)
			}
			return a.eachRun(c.Context(), args, func(ctx context.Context, s *session, name string) (*agentv1.Run, error) {
				return s.runs.CancelRun(ctx, &agentv1.CancelRunRequest{Name: name, Reason: reason, Mode: as, RequestId: resource.NewID()})
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.Flags().StringVar(&mode, "mode", "cancel", "cancel: without scores; score: stop and score; error: record it as an error")
	return c
}

func (a *app) runResumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resume RUN...",
		ValidArgsFunction: a.complete(offerRuns(agentv1.RunState_RUN_STATE_WAITING)),
		Short:             "Continue runs that are held or wait for a decision",
		Long: `A run waits for a decision when a model call, or the making of a sandbox, was lost again and again with the process
that did it. Resume has it done anew; cancel ends the run.`,
		Example: `  evalfleet run resume RUN`,
		Args:    some("a run; evalfleet run list --active shows those that wait"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.eachRun(c.Context(), args, func(ctx context.Context, s *session, name string) (*agentv1.Run, error) {
				return s.runs.ResumeRun(ctx, &agentv1.ResumeRunRequest{Name: name, RequestId: resource.NewID()})
			})
		},
	}
}

// eachRun does something with each run that the arguments name, and prints what became of it.
func (a *app) eachRun(ctx context.Context, ids []string, do func(ctx context.Context, s *session, name string) (*agentv1.Run, error)) error {
	return a.look(ctx, func(ctx context.Context, s *session) error {
		for _, id := range ids {
			name, err := s.name(ctx, runs, id)
			if err != nil {
				return err
			}
			r, err := do(ctx, s, name)
			if err != nil {
				return err
			}
			if a.json {
				err = a.emit(r)
			} else {
				a.print("%s %s", short(r.GetName()), runState(r))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *app) runWatchCommand() *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use:               "watch RUN",
		ValidArgsFunction: a.completeFirst(offerRuns(activeRuns...)),
		Short:             "Follow a run's transcript until it ends",
		Long:              "Watch is logs RUN --follow. An interrupt ends the watch, not the run.",
		Example:           `  evalfleet run watch RUN`,
		Args:              one("a run; evalfleet run list --active shows those that have not ended"),
		RunE: func(c *cobra.Command, args []string) error {
			f.follow = true
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				name, err := s.name(ctx, runs, args[0])
				if err != nil {
					return err
				}
				return s.transcript(ctx, name, f)
			})
		},
	}
	c.Flags().BoolVar(&f.full, "full", false, "do not cut long texts")
	c.Flags().BoolVar(&f.events, "events", false, "also name events that are no part of the conversation")
	return c
}

// doing describes in one line what a run does or waits for now; empty if no server drives it.
func (s *session) doing(wait *agentv1.RunWait, note *effectv1.Note, activity string) string {
	if s.idle {
		return ""
	}
	return progress.Doing(wait, note, activity)
}
