package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/taskfile"
	"github.com/evalfleet/evalfleet/services/allinone/internal/transcript"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/sandboxd"
	"github.com/evalfleet/evalfleet/services/toolexec"
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
		Long: `Run gives a prompt to an agent and shows the conversation as it grows: with tools a react agent, which works in a sandbox of its own where a tool needs one; without tools one answer of the
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
			if err := checkModelName(f.model); err != nil {
				return err
			}
			prompt := args[0]
			if prompt == "-" {
				ctx, stop := a.untilInterrupt(c.Context())
				b, err := io.ReadAll(io.LimitReader(a.input(ctx), chunkBytes))
				stop()
				if interrupted(ctx) {
					return errInterrupted
				}
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
	flags.Int32Var(&f.turns, "turns", 0, "model calls whose answers count; one more ends the run, and its answer is lost")
	flags.Int64Var(&f.tokens, "tokens", 0, "at most so many tokens")
	flags.DurationVar(&f.time, "time", 0, "at most so long, such as 5m")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "write the answer alone")
	flags.BoolVar(&a.allowUnisolated, "allow-unisolated", false, "let a sandbox be made although a part of its isolation is missing on this machine")
	a.completeFlag(c, "tool", offerTools, toolexec.Tools)
	a.completeFlag(c, "sandbox", offerDrivers, sandboxd.Drivers)
	a.completeFlag(c, "model", offerModels, modelgw.Models)
	c.AddCommand(a.runListCommand(), a.runShowCommand(), a.runCancelCommand(), a.runResumeCommand(), a.runWatchCommand(), a.runDeleteCommand())
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
		if spec.Model.ModelArgsJson, bodies, err = taskfile.ModelArgs(ctx, ".", args); err != nil {
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

// createRun makes a run. An interrupt ends the wait; a run that was made all the same is returned with errInterrupted.
func (s *session) createRun(ctx context.Context, prompt string, f runFlags) (run *agentv1.Run, err error) {
	ctx, stop := s.app.untilInterrupt(ctx)
	defer stop()
	defer func() {
		if interrupted(ctx) {
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
	req := &agentv1.CreateRunRequest{Parent: s.app.parent(), Spec: spec, RequestId: resource.NewID()}
	err = again(ctx, func() (err error) {
		run, err = s.runs.CreateRun(ctx, req)
		return err
	})
	return run, inFlagWords(err)
}

// runAgent makes a run and shows it as it grows.
func (s *session) runAgent(ctx context.Context, prompt string, f runFlags) error {
	run, err := s.createRun(ctx, prompt, f)
	if errors.Is(err, errInterrupted) && run != nil {
		return s.abandonRun(ctx, run.GetName())
	}
	if err != nil {
		return err
	}
	w := transcript.New(s.app.Stdout, transcript.Options{Color: s.app.colors(s.app.StdoutWidth())})
	warned := map[string]bool{}
	warn := func(text string) {
		if !warned[text] {
			warned[text] = true
			s.app.note("warning: %s", text)
		}
	}
	for _, w := range run.GetWarnings() {
		warn(w.GetMessage())
	}
	show := func(e *agentv1.Event) error {
		for _, text := range e.GetModelOutcome().GetContent().GetWarnings() {
			warn(text)
		}
		switch {
		case s.app.json:
			return s.app.emit(e)
		case !f.quiet:
			w.Event(e)
		}
		return nil
	}
	watched, stop := s.app.untilInterrupt(ctx)
	err = s.watchRun(watched, run.GetName(), show, !f.quiet && !s.app.json)
	stop()
	if interrupted(watched) {
		return s.abandonRun(ctx, run.GetName())
	}
	if err != nil {
		s.app.note("the run continues at the server; %s shows it", s.app.next("logs %s", short(run.GetName())))
		return err
	}
	if run, err = s.runs.GetRun(ctx, &agentv1.GetRunRequest{Name: run.GetName(), View: agentv1.RunView_RUN_VIEW_FULL}); err != nil {
		return err
	}
	if f.quiet && !s.app.json {
		s.app.answer(chat.Completion(run.GetOutput()))
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
	_, err := s.runs.CancelRun(ctx, &agentv1.CancelRunRequest{Name: name, Reason: "interrupted", RequestId: resource.NewID()})
	if interrupted(ctx) {
		s.leave = true
		return errInterrupted
	}
	if err != nil {
		return err
	}
	return errInterrupted
}
