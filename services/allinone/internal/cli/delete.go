package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// deletion is what the two commands that delete have in common.
type deletion struct {
	of         collection
	noun, list string
	olderThan  string
	yes        bool
	// old names what ended before a time.
	old func(ctx context.Context, s *session, before time.Time) ([]string, error)
	// remove deletes one.
	remove func(ctx context.Context, s *session, name string) error
}

func (a *app) runDeleteCommand() *cobra.Command {
	d := &deletion{of: runs, noun: "run", list: "evalfleet run list", old: oldRuns, remove: func(ctx context.Context, s *session, name string) error {
		_, err := s.runs.DeleteRun(ctx, &agentv1.DeleteRunRequest{Name: name})
		return err
	}}
	return a.deleteCommand(d, &cobra.Command{
		Use:               "delete RUN...",
		ValidArgsFunction: a.complete(offerRuns(endedRuns...)),
		Short:             "Delete runs that have ended, for good",
		Long:              "Delete forgets runs that have ended: transcript, outputs and scores. Runs of an evaluation go with it. What is deleted cannot be had back.",
		Example: `  evalfleet run delete RUN RUN
  evalfleet run delete --older-than 30d --yes`,
	})
}

func (a *app) evalDeleteCommand() *cobra.Command {
	d := &deletion{of: evals, noun: "evaluation", list: "evalfleet eval list", old: oldEvals, remove: func(ctx context.Context, s *session, name string) error {
		_, err := s.evals.DeleteEval(ctx, &agentv1.DeleteEvalRequest{Name: name})
		return err
	}}
	return a.deleteCommand(d, &cobra.Command{
		Use:               "delete EVAL...",
		ValidArgsFunction: a.complete(offerEvals),
		Short:             "Delete evaluations that have ended, with their runs, for good",
		Long: "Delete forgets evaluations that have ended, with all their runs: results, transcripts, scores. evalfleet logs export makes a file of one first. What is deleted cannot be had" +
			" back.",
		Example: `  evalfleet eval delete EVAL EVAL
  evalfleet eval delete --older-than 30d --yes`,
	})
}

func (a *app) deleteCommand(d *deletion, c *cobra.Command) *cobra.Command {
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && d.olderThan == "":
			return usage("name one or more %ss, or give --older-than; %s shows them", d.noun, d.list)
		case len(args) > 0 && d.olderThan != "":
			return usage("name %ss or give --older-than, not both", d.noun)
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		var age time.Duration
		if d.olderThan != "" {
			var err error
			if age, err = parseAge(d.olderThan); err != nil {
				return err
			}
		}
		return a.look(c.Context(), func(ctx context.Context, s *session) error {
			var names []string
			for _, id := range args {
				name, err := s.name(ctx, d.of, id)
				if err != nil {
					return err
				}
				names = append(names, name)
			}
			if d.olderThan != "" {
				var err error
				if names, err = d.old(ctx, s, time.Now().Add(-age)); err != nil {
					return err
				}
			}
			return a.deleteAll(ctx, s, d, names)
		})
	}
	c.Flags().StringVar(&d.olderThan, "older-than", "", "all that ended longer ago than this, such as 30d or 12h")
	c.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	return c
}

// deleteAll deletes what is named. What cannot be deleted does not keep the rest.
func (a *app) deleteAll(ctx context.Context, s *session, d *deletion, names []string) error {
	if len(names) == 0 {
		a.note("no %s is that old", d.noun)
		return nil
	}
	if ok, err := a.sure(d, names); err != nil || !ok {
		return err
	}
	var faults []error
	for _, name := range names {
		err := d.remove(ctx, s, name)
		if d.olderThan != "" && rpcerr.Code(err) == codes.NotFound {
			continue // The server's own retention, or another client, was first.
		}
		if err != nil {
			faults = append(faults, err)
			if ctx.Err() != nil || rpcerr.Code(err) == codes.Unavailable || rpcerr.Code(err) == codes.Unauthenticated {
				break // It would be the same for all.
			}
			continue
		}
		if a.json {
			b, _ := json.Marshal(map[string]string{"deleted": name}) // Texts can always be written.
			a.print("%s", b)
			continue
		}
		a.print("%s deleted", short(name))
	}
	return errors.Join(faults...)
}

// sure asks a person at a terminal; in a script the answer is --yes.
func (a *app) sure(d *deletion, names []string) (bool, error) {
	if d.yes {
		return true, nil
	}
	what := d.noun + " " + short(names[0])
	if len(names) > 1 {
		what = fmt.Sprintf("%d %ss", len(names), d.noun)
	}
	if a.json || a.StderrWidth() == 0 {
		return false, usage("%s would be deleted for good; say --yes", what)
	}
	fmt.Fprintf(a.Stderr, "delete %s for good? [y/N] ", what)
	answer, err := bufio.NewReader(io.LimitReader(a.Stdin, 100)).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return true, nil
	}
	if err != nil {
		a.note("")
	}
	a.note("nothing was deleted")
	return false, nil
}

// parseAge reads a time with days, which Go has none of.
func parseAge(text string) (time.Duration, error) {
	age, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		age = time.Duration(n * float64(24*time.Hour))
	}
	if err != nil || age < 0 {
		return 0, usage("--older-than: %q is no age; write 30d, 12h or 90m", text)
	}
	return age, nil
}

// The states of what has ended.
var (
	endedRuns = []agentv1.RunState{
		agentv1.RunState_RUN_STATE_SUCCEEDED, agentv1.RunState_RUN_STATE_FAILED, agentv1.RunState_RUN_STATE_CANCELLED,
	}
	endedEvals = []agentv1.EvalState{
		agentv1.EvalState_EVAL_STATE_SUCCEEDED, agentv1.EvalState_EVAL_STATE_FAILED, agentv1.EvalState_EVAL_STATE_CANCELLED,
	}
)

// oldRuns names runs of no evaluation that ended before a time.
func oldRuns(ctx context.Context, s *session, before time.Time) ([]string, error) {
	req := &agentv1.ListRunsRequest{Parent: s.app.parent(), States: endedRuns, PageSize: 1000}
	runs, err := page(0, func(token string) ([]*agentv1.Run, string, error) {
		req.PageToken = token
		r, err := s.runs.ListRuns(ctx, req)
		return r.GetRuns(), r.GetNextPageToken(), err
	})
	var names []string
	for _, r := range runs {
		if r.GetSpec().GetAttribution().GetEval() == "" && r.GetEndTime().AsTime().Before(before) {
			names = append(names, r.GetName())
		}
	}
	return names, err
}

// oldEvals names evaluations that ended before a time.
func oldEvals(ctx context.Context, s *session, before time.Time) ([]string, error) {
	req := &agentv1.ListEvalsRequest{Parent: s.app.parent(), States: endedEvals, PageSize: 1000}
	evals, err := page(0, func(token string) ([]*agentv1.Eval, string, error) {
		req.PageToken = token
		r, err := s.evals.ListEvals(ctx, req)
		return r.GetEvals(), r.GetNextPageToken(), err
	})
	var names []string
	for _, e := range evals {
		if e.GetEndTime().AsTime().Before(before) {
			names = append(names, e.GetName())
		}
	}
	return names, err
}
