package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
	"github.com/evalfleet/evalfleet/services/allinone/internal/transcript"
)

// logFlags choose what of a log to show, and how.
type logFlags struct {
	sample string
	epoch  int32
	failed bool
	follow bool
	full   bool
	events bool
}

func (a *app) logsCommand() *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use:               "logs [EVAL|RUN]",
		ValidArgsFunction: a.completeFirst(either(offerEvals, offerRuns())),
		Short:             "Read what happened: an evaluation's samples, or the transcript of a run",
		Long: `Logs of an evaluation lists its samples with their scores; with --sample it is the transcript of that sample's run. Logs of a run is its transcript: messages, tool calls, results, scores.
Without a name it takes the newest evaluation.`,
		Example: `  evalfleet logs EVAL                      samples with their scores
  evalfleet logs EVAL --failed             only those that failed or scored nothing
  evalfleet logs EVAL --sample HumanEval/7 what happened in one
  evalfleet logs EVAL --follow             a line for each sample that ends, until the evaluation ends
  evalfleet logs RUN --follow              a run while it works
  evalfleet logs RUN --json                its events
  evalfleet logs export EVAL               a log file for inspect view`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("%q is one argument too many", args[1])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.failed && f.sample != "" {
				return usage("--failed lists samples, and --sample shows one; give one of them")
			}
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				eval, run, err := s.find(ctx, args)
				if err != nil {
					return err
				}
				if run != "" {
					return s.transcript(ctx, run, f)
				}
				return s.logsOfEval(ctx, eval, f)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.sample, "sample", "", "transcript of the sample with this id")
	flags.Int32Var(&f.epoch, "epoch", 0, "of this epoch (default: the first)")
	flags.BoolVar(&f.failed, "failed", false, "only samples that failed, met a limit, lost their sandbox, or did not score")
	flags.BoolVarP(&f.follow, "follow", "f", false, "continue until the evaluation or the run ends: with a line for each sample that ends, or with the transcript")
	flags.BoolVar(&f.full, "full", false, "do not cut long texts")
	flags.BoolVar(&f.events, "events", false, "also name events that are no part of the conversation")
	_ = c.RegisterFlagCompletionFunc("sample", func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		return a.fitting(c, begun, offerSamples(args)), cobra.ShellCompDirectiveNoFileComp
	}) // Fails only for a flag that the command does not have.
	c.AddCommand(a.logsExportCommand())
	return c
}

// find finds out whether a name is an evaluation's or a run's. Exactly one of both is set.
func (s *session) find(ctx context.Context, args []string) (eval, run string, err error) {
	if len(args) == 0 {
		r, err := s.evals.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: s.app.parent(), PageSize: 1})
		if err != nil {
			return "", "", err
		}
		if len(r.GetEvals()) == 0 {
			return "", "", errors.New("no evaluations yet; evalfleet eval run TASK_FILE makes one")
		}
		return r.GetEvals()[0].GetName(), "", nil
	}
	id := args[0]
	switch {
	case strings.Contains(id, "runs/"):
		run, err = s.name(ctx, runs, id)
		return "", run, err
	case strings.Contains(id, "evals/"):
		eval, err = s.name(ctx, evals, id)
		return eval, "", err
	}
	name := s.app.name("evals", id)
	if err = evals.get(ctx, s, name); rpcerr.Code(err) != codes.NotFound {
		return name, "", err
	}
	if runErr := runs.get(ctx, s, s.app.name("runs", id)); rpcerr.Code(runErr) != codes.NotFound {
		return "", s.app.name("runs", id), runErr
	}
	return s.findBeginning(ctx, id, err)
}

// findBeginning finds the only evaluation or run whose id begins so. Missing is the error where there is none.
func (s *session) findBeginning(ctx context.Context, id string, missing error) (eval, run string, err error) {
	var fits []string
	for _, of := range []collection{evals, runs} {
		all, err := of.list(ctx, s)
		if err != nil {
			return "", "", err
		}
		fits = append(fits, beginning(all, s.app.name(of.id, id))...)
	}
	switch {
	case len(fits) == 0:
		return "", "", rpcerr.Wrap(missing, "%s is neither an evaluation nor a run", id)
	case len(fits) > 1:
		return "", "", ambiguous("evaluations and runs", id, fits)
	case strings.Contains(fits[0], "/runs/"):
		return "", fits[0], nil
	}
	return fits[0], "", nil
}

func (s *session) logsOfEval(ctx context.Context, eval string, f logFlags) error {
	if f.follow && f.sample == "" {
		return s.followEval(ctx, eval, f)
	}
	samples, err := s.samples(ctx, eval)
	if err != nil {
		return err
	}
	if f.sample != "" {
		return s.logOfSample(ctx, eval, samples, f)
	}
	var shown []*agentv1.EvalSample
	for _, sample := range samples {
		if (!f.failed || !fine(sample)) && (f.epoch == 0 || sample.GetEpoch() == f.epoch) {
			shown = append(shown, sample)
		}
	}
	if s.app.json {
		return emitAll(s.app, shown)
	}
	s.showSamples(shown)
	if len(shown) > 0 {
		s.app.note("\n%s shows what happened in one", s.app.next("logs %s --sample %s", short(eval), shellQuote(shown[0].GetId())))
	} else {
		s.app.note("no such samples")
	}
	return nil
}

// logOfSample shows the transcript of one sample's run.
func (s *session) logOfSample(ctx context.Context, eval string, samples []*agentv1.EvalSample, f logFlags) error {
	id, err := sampleID(eval, samples, f.sample)
	if err != nil {
		return err
	}
	for _, sample := range samples {
		if sample.GetId() != id || f.epoch != 0 && sample.GetEpoch() != f.epoch {
			continue
		}
		switch {
		case sample.GetRun() == "" && sample.GetError() != nil:
			return fmt.Errorf("sample %s could not begin: %s", id, sample.GetError().GetMessage())
		case sample.GetRun() == "":
			return fmt.Errorf("sample %s has not begun", id)
		}
		return s.transcript(ctx, sample.GetRun(), f)
	}
	return fmt.Errorf("sample %s has no epoch %d", id, f.epoch)
}

// fine reports whether a sample ended without an error or a limit, with its sandbox and with full scores.
func fine(sample *agentv1.EvalSample) bool {
	if sample.GetState() != agentv1.RunState_RUN_STATE_SUCCEEDED || sample.GetLimit() != nil || sample.GetError() != nil || sample.GetSandboxFault() != "" {
		return false
	}
	for _, score := range sample.GetScores() {
		switch transcript.ScoreText(score.GetScore().GetValue()) {
		case "I", "N", "0", "false", "–", "NaN":
			return false
		}
	}
	return true
}

// transcript writes a run's events: the existing ones and, with --follow, those to come.
func (s *session) transcript(ctx context.Context, run string, f logFlags) error {
	w := transcript.New(s.app.Stdout, transcript.Options{Color: s.app.colors(s.app.StdoutWidth()), Full: f.full, Events: f.events})
	show := func(e *agentv1.Event) error {
		if s.app.json {
			return s.app.emit(e)
		}
		w.Event(e)
		return nil
	}
	if f.follow {
		if err := s.checkDriven(ctx, run); err != nil {
			return err
		}
		return s.watchRun(ctx, run, show, !s.app.json)
	}
	for after := int64(0); ; {
		r, err := s.runs.ListRunEvents(ctx, &agentv1.ListRunEventsRequest{Parent: run, AfterSeq: after, Content: true, PageSize: 1000})
		if err != nil {
			return err
		}
		for _, e := range r.GetEvents() {
			after = e.GetSeq()
			if err := show(e); err != nil {
				return err
			}
		}
		if len(r.GetEvents()) == 0 || after >= r.GetHead() {
			return nil
		}
	}
}

// checkDriven fails for a run that has not ended and has no server that drives it.
func (s *session) checkDriven(ctx context.Context, run string) error {
	if !s.idle {
		return nil
	}
	r, err := s.runs.GetRun(ctx, &agentv1.GetRunRequest{Name: run})
	if err != nil || r.GetEndTime() != nil {
		return err
	}
	if id := short(run); undecided(r.GetWait()) {
		return fmt.Errorf("%s waits for a decision: %s continues it, %s ends it", id, s.app.next("run resume %s", id), s.app.next("run cancel %s", id))
	}
	return fmt.Errorf("no server drives %s, so that nothing would come: %s continues it", short(run), s.app.next("serve"))
}

// watchRun shows a run's events until it has ended, and notes what is known of its open effects, if it is asked to. A
// connection that breaks is made again.
func (s *session) watchRun(ctx context.Context, run string, show func(*agentv1.Event) error, notes bool) error {
	cursor := ""
	return resume(ctx, func(heard func()) error {
		stream, err := s.runs.WatchRun(ctx, &agentv1.WatchRunRequest{Name: run, Cursor: cursor, Content: true})
		if err != nil {
			return err
		}
		return receiveAll(stream, &cursor, heard, func(r *agentv1.WatchRunResponse) error {
			if n := r.GetNote().GetNote(); n != nil && notes {
				s.app.note("  … %s", transcript.NoteText(n))
			}
			if r.GetEvent() == nil {
				return nil
			}
			return show(r.GetEvent())
		})
	})
}

// shellQuote writes a text so that a shell reads it as one word. What print would replace is written as bytes in base
// 8, which bash, zsh and ksh read.
func shellQuote(text string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@=,", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !safe(r) }) < 0 {
		return text
	}
	if printable.Line(text) == text {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	word := "$'"
	for _, b := range []byte(text) {
		if safe(rune(b)) {
			word += string(b)
		} else {
			word += fmt.Sprintf(`\%03o`, b)
		}
	}
	return word + "'"
}
