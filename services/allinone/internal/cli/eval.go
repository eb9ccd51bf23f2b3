package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
)

func (a *app) evalCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "eval",
		Short: "Run and manage evaluations",
		Long:  "An evaluation gives every sample of a dataset to a model or agent and judges what comes of it. A task file describes it (docs/task-file.md).",
		Example: `  evalfleet eval run task.yaml -m openai/gpt-4o --limit 10
  evalfleet eval list
  evalfleet eval show EVAL
  evalfleet eval cancel EVAL
  evalfleet eval resume EVAL
  evalfleet eval delete EVAL`,
	}, a.evalRunCommand(), a.evalListCommand(), a.evalShowCommand(), a.evalCancelCommand(), a.evalResumeCommand(), a.evalDeleteCommand())
}

func (a *app) evalListCommand() *cobra.Command {
	var limit int
	var active bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List evaluations, newest first",
		Example: `  evalfleet eval list
  evalfleet eval list --active
  evalfleet eval list --json | jq -r .name`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				req := &agentv1.ListEvalsRequest{Parent: a.parent()}
				if active {
					req.States = activeEvals
				}
				listed, err := page(limit, func(token string) ([]*agentv1.Eval, string, error) {
					req.PageToken = token
					r, err := s.evals.ListEvals(ctx, req)
					return r.GetEvals(), r.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				return s.showEvals(listed)
			})
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 20, "show at most so many; 0 shows all")
	c.Flags().BoolVar(&active, "active", false, "only those that have not ended")
	return c
}

// activeEvals are the states of evaluations that have not ended.
var activeEvals = []agentv1.EvalState{agentv1.EvalState_EVAL_STATE_PENDING, agentv1.EvalState_EVAL_STATE_RUNNING}

func (s *session) showEvals(listed []*agentv1.Eval) error {
	a := s.app
	if a.json {
		for _, e := range listed {
			if err := a.emit(e); err != nil {
				return err
			}
		}
		return nil
	}
	if len(listed) == 0 {
		a.note("no evaluations; evalfleet eval run TASK_FILE makes one")
		return nil
	}
	var rows [][]string
	interrupted := ""
	for _, e := range listed {
		p := e.GetProgress()
		state := s.evalState(e)
		switch {
		case state == stateInterrupted && interrupted == "":
			interrupted = short(e.GetName())
		case !s.idle && !ended(e) && p.GetWaiting() > 0:
			state += fmt.Sprintf(", %d waiting", p.GetWaiting())
		}
		done := fmt.Sprintf("%d/%d", progress.Done(p), p.GetTotal())
		if failed := p.GetFailed(); failed > 0 {
			done += fmt.Sprintf(", %d failed", failed)
		}
		rows = append(rows, []string{
			short(e.GetName()), e.GetSpec().GetTask(), models(e.GetSpec()), state, done, headline(e), progress.Count(p.GetTotalTokens()), when(e.GetCreateTime()),
		})
	}
	a.table([]string{"eval", "task", "model", "state", "done", "result", "tokens", "made"}, rows)
	if interrupted != "" {
		a.note("\nno server drives what is interrupted: %s continues it, or %s all", a.next("eval resume %s", interrupted), a.next("serve"))
	}
	return nil
}

func (a *app) evalShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show EVAL",
		ValidArgsFunction: a.completeFirst(offerEvals),
		Short:             "Show an evaluation: state, results, costs",
		Long: `Show writes an evaluation's state, results and costs. A metric that has no value, since nothing was scored, is – here and has no member "value" with --json. jq reads null there, which
is below every number: compare where .value != null.`,
		Example: `  evalfleet eval show EVAL
  evalfleet eval show EVAL --json | jq .results
  evalfleet eval show EVAL --json | jq -e '.results.scores[0].metrics[0].value // error("no value") | . >= 0.9'`,
		Args: one("an evaluation; evalfleet eval list shows them"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				name, err := s.name(ctx, evals, args[0])
				if err != nil {
					return err
				}
				e, err := s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name, Content: true})
				if err != nil {
					return err
				}
				if a.json {
					return a.emit(e)
				}
				return s.showEval(ctx, e, nil)
			})
		},
	}
}

func (a *app) evalCancelCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:               "cancel EVAL...",
		ValidArgsFunction: a.complete(offerEvals),
		Short:             "Stop evaluations; finished samples stay",
		Long:              "Cancel stops an evaluation: no sample starts any more, running ones are cancelled, finished ones stay. evalfleet eval resume continues it.",
		Example:           `  evalfleet eval cancel EVAL --reason "wrong prompt"`,
		Args:              some("an evaluation; evalfleet eval list --active shows those that have not ended"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				for _, id := range args {
					name, err := s.name(ctx, evals, id)
					if err != nil {
						return err
					}
					e, err := s.evals.CancelEval(ctx, &agentv1.CancelEvalRequest{Name: name, Reason: reason, RequestId: resource.NewID()})
					if err != nil {
						return err
					}
					if a.json {
						err = a.emit(e)
					} else {
						a.print("%s", a.cancelled(e))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return c
}

// cancelled describes the state of an evaluation after a cancellation; one that has succeeded stays as it is.
func (a *app) cancelled(e *agentv1.Eval) string {
	id := short(e.GetName())
	if e.GetState() == agentv1.EvalState_EVAL_STATE_SUCCEEDED {
		return fmt.Sprintf("%s has succeeded; there is nothing to cancel", id)
	}
	if !ended(e) {
		return fmt.Sprintf("%s is being cancelled; %d samples have not ended yet, %s shows them", id, e.GetProgress().GetRunning(), a.next("eval show %s", id))
	}
	return fmt.Sprintf("%s %s; %s continues it", id, evalState(e), a.next("eval resume %s", id))
}

func (a *app) evalResumeCommand() *cobra.Command {
	var logs logDirFlags
	c := &cobra.Command{
		Use:               "resume EVAL",
		ValidArgsFunction: a.completeFirst(offerEvals),
		Short:             "Continue an evaluation that was cancelled, or has samples that failed",
		Long:              "Resume continues an evaluation: samples that are done stay, the others run again. It follows the evaluation as eval run does. Where all are done there is nothing to resume, and the exit code is not 0.",
		Example:           `  evalfleet eval resume EVAL`,
		Args:              one("an evaluation; evalfleet eval list shows them"),
		RunE: func(c *cobra.Command, args []string) error {
			logDir, err := logs.folder(a)
			if err != nil {
				return err
			}
			return a.work(c.Context(), func(ctx context.Context, s *session) error {
				s.logFlags = logs.words(c)
				name, err := s.name(ctx, evals, args[0])
				if err != nil {
					return err
				}
				e, err := s.evals.ResumeEval(ctx, &agentv1.ResumeEvalRequest{Name: name, RequestId: resource.NewID()})
				if err != nil {
					return err
				}
				return s.own(ctx, e, logDir)
			})
		},
	}
	logs.add(c)
	return c
}
