package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
	"github.com/evalfleet/evalfleet/services/allinone/internal/taskfile"
	"github.com/evalfleet/evalfleet/services/allinone/internal/transcript"
)

// runFlags describe a run.
type runFlags struct {
	model     string
	modelArgs []string
	agent     string
	system    string
	tools     []string
	sandbox   string
	keep      bool
	turns     int32
	tokens    int64
	time      time.Duration
	quiet     bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run PROMPT",
		Short: "Run one agent once and follow what it does",
		Long: `Run gives a prompt to an agent and shows the conversation as it goes on: with tools a react agent, which works in a sandbox of its own where a tool needs one; without tools one answer of the
model. The prompt - is read from standard input. An interrupt (Ctrl-C) cancels the run.`,
		Example: `  evalfleet run --model openai/gpt-4o "Why is the sky blue?"
  evalfleet run --model openai/gpt-4o --tool bash --tool python "What is the 1000th prime?"
  git diff | evalfleet run -q --model openai/gpt-4o --system "Review this change." -
  evalfleet run list
  evalfleet run show RUN`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage("give a prompt, or - to read it from standard input")
			case len(args) > 1:
				return usage("give one prompt; put it in quotes")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.model == "" {
				return usage("no model; give one with --model PROVIDER/MODEL")
			}
			prompt := args[0]
			if prompt == "-" {
				b, err := io.ReadAll(io.LimitReader(a.Stdin, chunkBytes))
				if err != nil {
					return err
				}
				prompt = string(b)
			}
			return a.work(c.Context(), func(ctx context.Context, s *session) error { return s.runAgent(ctx, prompt, f) })
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.model, "model", "m", "", "model, provider/name")
	flags.StringArrayVarP(&f.modelArgs, "model-arg", "M", nil, "argument of the model, name=value; relative paths start here")
	flags.StringVar(&f.agent, "agent", "", "agent or solver (default: react with tools, else generate)")
	flags.StringVar(&f.system, "system", "", "system message")
	flags.StringArrayVar(&f.tools, "tool", nil, "tool, such as bash; again for several")
	flags.StringVar(&f.sandbox, "sandbox", "", "sandbox driver (default: the server's, where a tool needs a sandbox)")
	flags.BoolVar(&f.keep, "keep-sandbox", false, "keep the sandbox when the run ends, under its lease")
	flags.Int32Var(&f.turns, "turns", 0, "at most so many model calls")
	flags.Int64Var(&f.tokens, "tokens", 0, "at most so many tokens")
	flags.DurationVar(&f.time, "time", 0, "at most so long, such as 5m")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "write the answer alone")
	flags.BoolVar(&a.allowUnisolated, "allow-unisolated", false, "let a sandbox be made although a part of its isolation is missing on this machine")
	c.AddCommand(a.runListCommand(), a.runShowCommand(), a.runCancelCommand(), a.runWatchCommand())
	return c
}

// spec makes a run of a prompt and the flags.
func (s *session) spec(ctx context.Context, prompt string, f runFlags) (*agentv1.RunSpec, []taskfile.Body, error) {
	spec := &agentv1.RunSpec{
		Input: []*modelv1.ChatMessage{chat.User(prompt)}, Model: &agentv1.ModelRef{Model: f.model},
		Limits: &agentv1.RunLimits{}, KeepSandboxes: f.keep,
	}
	args, err := pairs("-M", f.modelArgs)
	if err != nil {
		return nil, nil, err
	}
	var bodies []taskfile.Body
	if len(args) > 0 {
		if spec.Model.ModelArgsJson, bodies, err = taskfile.ModelArgs(".", args); err != nil {
			return nil, nil, usageError{err}
		}
	}
	if f.system != "" {
		params, err := json.Marshal(map[string]string{"template": f.system})
		if err != nil {
			return nil, nil, err
		}
		spec.Steps = append(spec.Steps, &agentv1.AgentRef{Name: "system_message", ParamsJson: string(params)})
	}
	agent := f.agent
	switch {
	case agent == "" && len(f.tools) > 0:
		agent = "react"
	case agent == "":
		agent = "generate"
	}
	spec.Steps = append(spec.Steps, &agentv1.AgentRef{Name: agent})
	boxed := f.sandbox != ""
	if len(f.tools) > 0 {
		known, err := s.listTools(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range f.tools {
			spec.Tools = append(spec.Tools, &toolv1.ToolRef{Name: name})
			for _, t := range known {
				boxed = boxed || t.GetInfo().GetName() == name && t.GetNeedsSandbox()
			}
		}
	}
	if boxed {
		spec.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {Driver: f.sandbox, AllowUnisolated: s.app.allowUnisolated}}
	}
	if f.turns > 0 {
		spec.Limits.Turns = &f.turns
	}
	if f.tokens > 0 {
		spec.Limits.Tokens = &f.tokens
	}
	if f.time > 0 {
		spec.Limits.Time = durationpb.New(f.time)
	}
	return spec, bodies, nil
}

// createRun makes a run. An interrupt ends the wait.
func (s *session) createRun(ctx context.Context, prompt string, f runFlags) (run *agentv1.Run, err error) {
	ctx, stop := s.app.untilInterrupt(ctx)
	defer stop()
	defer func() {
		if err != nil && interrupted(ctx) {
			err = errInterrupted
		}
	}()
	spec, bodies, err := s.spec(ctx, prompt, f)
	if err != nil {
		return nil, err
	}
	if err := s.upload(ctx, bodies); err != nil {
		return nil, err
	}
	req := &agentv1.CreateRunRequest{Parent: s.app.parent(), Spec: spec, RequestId: uuid.NewString()}
	err = again(ctx, func() (err error) {
		run, err = s.runs.CreateRun(ctx, req)
		return err
	})
	return run, err
}

// runAgent makes a run and shows it as it goes on.
func (s *session) runAgent(ctx context.Context, prompt string, f runFlags) error {
	run, err := s.createRun(ctx, prompt, f)
	if err != nil {
		return err
	}
	w := transcript.New(s.app.Stdout, transcript.Options{Color: s.app.StdoutWidth() > 0})
	show := func(e *agentv1.Event) error {
		switch {
		case s.app.json:
			return s.app.emit(e)
		case !f.quiet:
			w.Event(e)
		}
		return nil
	}
	watched, stop := s.app.untilInterrupt(ctx)
	err = s.watchRun(watched, run.GetName(), show)
	stop()
	if interrupted(watched) {
		return s.abandonRun(ctx, run.GetName())
	}
	if err != nil {
		s.app.note("the run goes on at the server; %s shows it", s.app.next("logs %s", short(run.GetName())))
		return err
	}
	if run, err = s.runs.GetRun(ctx, &agentv1.GetRunRequest{Name: run.GetName(), View: agentv1.RunView_RUN_VIEW_FULL}); err != nil {
		return err
	}
	if f.quiet && !s.app.json {
		s.app.print("%s", chat.Completion(run.GetOutput()))
	}
	if run.GetState() != agentv1.RunState_RUN_STATE_SUCCEEDED {
		if f.quiet {
			return fmt.Errorf("the run %s: %s", runState(run), run.GetError().GetMessage())
		}
		return statusError{code: exitFailed}
	}
	return nil
}

// abandonRun cancels a run that its owner has interrupted.
func (s *session) abandonRun(ctx context.Context, name string) error {
	s.app.note("cancelling %s; interrupt again to leave at once", short(name))
	ctx, stop := s.app.untilInterrupt(ctx)
	defer stop()
	_, err := s.runs.CancelRun(ctx, &agentv1.CancelRunRequest{Name: name, Reason: "interrupted", RequestId: uuid.NewString()})
	if interrupted(ctx) {
		s.leave = true
		return errInterrupted
	}
	if err != nil {
		return err
	}
	return errInterrupted
}

func runState(r *agentv1.Run) string { return transcript.RunStateText(r.GetState()) }

// activeRuns are the states of runs that go on.
var activeRuns = []agentv1.RunState{
	agentv1.RunState_RUN_STATE_PENDING, agentv1.RunState_RUN_STATE_RUNNING, agentv1.RunState_RUN_STATE_WAITING, agentv1.RunState_RUN_STATE_SCORING,
}

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
					req.Eval = a.name("evals", eval)
				}
				runs, err := page(limit, func(token string) ([]*agentv1.Run, string, error) {
					req.PageToken = token
					r, err := s.runs.ListRuns(ctx, req)
					return r.GetRuns(), r.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				return a.showRuns(runs)
			})
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 20, "show at most so many; 0 shows all")
	c.Flags().BoolVar(&active, "active", false, "only those that have not ended")
	c.Flags().StringVar(&eval, "eval", "", "only those of this evaluation")
	return c
}

func (a *app) showRuns(runs []*agentv1.Run) error {
	var rows [][]string
	for _, r := range runs {
		if a.json {
			if err := a.emit(r); err != nil {
				return err
			}
			continue
		}
		state := runState(r)
		if w := r.GetWait(); w != nil {
			state += " for " + w.GetReason()
		}
		rows = append(rows, []string{
			short(r.GetName()), r.GetSpec().GetModel().GetModel(), state, fmt.Sprint(r.GetTurns()), progress.Count(totalTokens(r)), when(r.GetCreateTime()),
		})
	}
	switch {
	case a.json:
	case len(rows) == 0:
		a.note("no runs; evalfleet run --model PROVIDER/MODEL PROMPT makes one")
	default:
		a.table([]string{"run", "model", "state", "turns", "tokens", "made"}, rows)
	}
	return nil
}

func totalTokens(r *agentv1.Run) int64 {
	var n int64
	for _, u := range r.GetUsage() {
		n += u.GetTotalTokens()
	}
	return n
}

func (a *app) runShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: state, scores, costs, answer",
		Example: `  evalfleet run show RUN
  evalfleet run show RUN --json | jq .messages`,
		Args: one("a run; evalfleet run list shows them"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				r, err := s.runs.GetRun(ctx, &agentv1.GetRunRequest{Name: a.name("runs", args[0]), View: agentv1.RunView_RUN_VIEW_FULL})
				if err != nil {
					return err
				}
				if a.json {
					return a.emit(r)
				}
				a.showRun(r)
				return nil
			})
		},
	}
}

func (a *app) showRun(r *agentv1.Run) {
	a.print("%s · %s", r.GetName(), runState(r))
	a.print("model %s · %d turns · %d messages · %s tokens · working %s", dash(r.GetSpec().GetModel().GetModel()), r.GetTurns(), r.GetMessageCount(),
		progress.Count(totalTokens(r)), r.GetWorkingTime().AsDuration().Round(10*time.Millisecond))
	if w := r.GetWait(); w != nil {
		a.print("waits for %s: %s", w.GetReason(), w.GetMessage())
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
		a.print("\n%s", transcript.Printable(text))
	}
	a.print("\nlog  %s", a.next("logs %s", short(r.GetName())))
}

func (a *app) runCancelCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:     "cancel RUN...",
		Short:   "End runs; nothing starts after that",
		Example: `  evalfleet run cancel RUN --reason "stuck"`,
		Args:    some("a run; evalfleet run list --active shows those that go on"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				for _, id := range args {
					r, err := s.runs.CancelRun(ctx, &agentv1.CancelRunRequest{Name: a.name("runs", id), Reason: reason, RequestId: uuid.NewString()})
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
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return c
}

func (a *app) runWatchCommand() *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use:     "watch RUN",
		Short:   "Follow a run's transcript until it ends",
		Long:    "Watch is logs RUN --follow. An interrupt ends the watch, not the run.",
		Example: `  evalfleet run watch RUN`,
		Args:    one("a run; evalfleet run list --active shows those that go on"),
		RunE: func(c *cobra.Command, args []string) error {
			f.follow = true
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.transcript(ctx, a.name("runs", args[0]), f) })
		},
	}
	c.Flags().BoolVar(&f.full, "full", false, "do not cut long texts")
	c.Flags().BoolVar(&f.events, "events", false, "also name events that are no part of the conversation")
	return c
}
