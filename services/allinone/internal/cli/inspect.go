package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func (a *app) inspectCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "inspect",
		Short:   "Run tasks of inspect_ai on evalfleet",
		Example: `  evalfleet inspect run task.py --model openai/gpt-4o --limit 10`,
	}, a.inspectRunCommand())
}

// inspectRun is what evalfleet inspect run was asked for.
type inspectRun struct {
	python    string
	driver    string
	image     string
	noSandbox bool
}

func (a *app) inspectRunCommand() *cobra.Command {
	var run inspectRun
	c := &cobra.Command{
		Use:   "run [flags] TASK [ARGUMENTS OF inspect eval...]",
		Short: "Run inspect eval with the models and sandboxes of a server, and start one if none runs",
		Long: `Run finds a server or starts one, and runs inspect eval with it: models get the prefix evalfleet/, and samples a sandbox of evalfleet. The task needs no change. Flags of this command stand before the
task; all that follows is inspect's, such as --model openai/gpt-4o, -T, --limit. It exits as inspect does, and stops a server that it has started. An interrupt is inspect's first: it writes its log and
removes its sandboxes; a second one ends it.

It needs the package evalfleet-inspect (pip install evalfleet-inspect) where inspect is installed: on PATH, or with --python. docs/inspect.md has all settings.`,
		Example: `  evalfleet inspect run task.py --model openai/gpt-4o
  evalfleet inspect run task.py@hard --model anthropic/claude-sonnet-4-5 --limit 10 -T level=3
  evalfleet inspect run --driver docker --image python:3.12 task.py --model openai/gpt-4o
  evalfleet inspect run --python .venv/bin/python task.py --model openai/gpt-4o`,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name a task of inspect: evalfleet inspect run task.py --model openai/gpt-4o")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return []string{"py"}, cobra.ShellCompDirectiveFilterFileExt
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(c *cobra.Command, args []string) error { return a.runInspect(c.Context(), run, args) },
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&run.python, "python", "", "Python that has inspect_ai and evalfleet-inspect (default: inspect on PATH)")
	f.StringVar(&run.driver, "driver", "", "driver of sandboxes whose task names none: local or docker (default: the server's)")
	f.StringVar(&run.image, "image", "", "image of sandboxes whose task names none")
	f.BoolVar(&run.noSandbox, "no-sandbox", false, "leave the sandboxes of the task as they are")
	_ = c.RegisterFlagCompletionFunc("driver", cobra.FixedCompletions([]string{"docker", "local"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// program is the command line of inspect without its arguments.
func (r inspectRun) program() ([]string, error) {
	if r.python != "" {
		path, err := exec.LookPath(r.python)
		if err != nil {
			return nil, usage("--python %s: %w", r.python, err)
		}
		return []string{path, "-m", "inspect_ai"}, nil
	}
	path, err := exec.LookPath("inspect")
	if err != nil {
		return nil, usage("inspect is not on PATH: pip install evalfleet-inspect, or name the Python that has it with --python")
	}
	return []string{path}, nil
}

// modelFlags are the arguments of inspect that name models, and what changes their values.
var modelFlags = map[string]func(string) string{"--model": onEvalfleet, "--model-role": roleOnEvalfleet, "--model-spec": settingsOnEvalfleet}

// arguments are those of inspect eval, with models and the sandbox of evalfleet.
func (r inspectRun) arguments(given []string) []string {
	args, sandbox := []string{"eval"}, r.noSandbox
	for i := 0; i < len(given); i++ {
		flag, value, joined := strings.Cut(given[i], "=")
		change := modelFlags[flag]
		sandbox = sandbox || flag == "--sandbox"
		switch {
		case change == nil:
			args = append(args, given[i])
		case joined:
			args = append(args, flag+"="+change(value))
		case i+1 < len(given):
			i++
			args = append(args, flag, change(given[i]))
		default:
			args = append(args, flag)
		}
	}
	if !sandbox {
		args = append(args, "--sandbox", "evalfleet")
	}
	return args
}

// onEvalfleet puts the prefix before each model of a list with commas. `none` stays: it is no model.
func onEvalfleet(models string) string {
	list := strings.Split(models, ",")
	for i, model := range list {
		model = strings.TrimSpace(model)
		if model != "" && model != "none" && !strings.HasPrefix(model, "none/") && !strings.HasPrefix(model, "evalfleet/") {
			model = "evalfleet/" + model
		}
		list[i] = model
	}
	return strings.Join(list, ",")
}

// roleOnEvalfleet is onEvalfleet for ROLE=MODELS and ROLE=SETTINGS.
func roleOnEvalfleet(value string) string {
	role, models, found := strings.Cut(value, "=")
	switch {
	case !found:
		return value
	case strings.HasPrefix(models, "{") || strings.HasPrefix(models, "["):
		return role + "=" + settingsOnEvalfleet(models)
	}
	return role + "=" + onEvalfleet(models)
}

// settingsOnEvalfleet is onEvalfleet for models with settings in YAML or JSON. Inspect tells what is wrong with a text
// that is neither.
func settingsOnEvalfleet(text string) string {
	var settings yaml.Node
	if err := yaml.Unmarshal([]byte(text), &settings); err != nil || len(settings.Content) == 0 {
		return text
	}
	prefixModels(settings.Content[0])
	changed, err := yaml.Marshal(&settings)
	if err != nil {
		return text
	}
	return strings.TrimSpace(string(changed))
}

// prefixModels changes a name of a model, the member `model` of a map of settings, or both in a list.
func prefixModels(settings *yaml.Node) {
	switch settings.Kind {
	case yaml.ScalarNode:
		settings.Value = onEvalfleet(settings.Value)
	case yaml.SequenceNode:
		for _, one := range settings.Content {
			prefixModels(one)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(settings.Content); i += 2 {
			if settings.Content[i].Value == "model" {
				prefixModels(settings.Content[i+1])
			}
		}
	case yaml.DocumentNode, yaml.AliasNode: // The one is around settings, the other stands for a node changed before.
	}
}

func (a *app) runInspect(ctx context.Context, run inspectRun, given []string) error {
	program, err := run.program()
	if err != nil {
		return err
	}
	s, err := a.begin(ctx)
	if err != nil {
		return err
	}
	err = s.inspect(ctx, program, run, given)
	started := s.here != nil
	closeErr := s.close(ctx)
	if started && closeErr == nil {
		a.note("stopped the server")
	}
	if err == nil {
		return closeErr
	}
	return err
}

// inspect runs inspect eval to its end, or until it is interrupted.
func (s *session) inspect(ctx context.Context, program []string, run inspectRun, given []string) error {
	token, err := s.secret(ctx)
	if err != nil {
		return err
	}
	args := run.arguments(given)
	s.app.note("running: inspect %s", shellLine(args))
	c := exec.CommandContext(context.WithoutCancel(ctx), program[0], append(program[1:], args...)...)
	c.Stdin, c.Stdout, c.Stderr = s.app.Stdin, inherited(s.app.Stdout), s.app.Stderr
	c.Env = append(os.Environ(), "EVALFLEET_SERVER="+s.address, "EVALFLEET_TOKEN="+token, "EVALFLEET_PROJECT="+strings.TrimPrefix(s.app.project, "projects/"))
	if models, ok := s.app.Env("INSPECT_EVAL_MODEL"); ok {
		c.Env = append(c.Env, "INSPECT_EVAL_MODEL="+onEvalfleet(models))
	}
	if run.driver != "" {
		c.Env = append(c.Env, "EVALFLEET_SANDBOX_DRIVER="+run.driver)
	}
	if run.image != "" {
		c.Env = append(c.Env, "EVALFLEET_SANDBOX_IMAGE="+run.image)
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start inspect: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	return s.app.outcome(c.Process, ended)
}

// How long inspect may take to write its log and to remove its sandboxes once it is interrupted.
const inspectGrace = 30 * time.Second

// outcome waits for inspect. A terminal sends an interrupt to both programs; without one, this passes it on. If inspect
// does not end, or is interrupted again, it is killed, and its sandboxes end with their leases.
func (a *app) outcome(inspect *os.Process, ended <-chan error) error {
	var late <-chan time.Time
	stopped := false
	for {
		select {
		case err := <-ended:
			switch exit, failed := errors.AsType[*exec.ExitError](err); {
			case stopped:
				return errInterrupted
			case failed:
				return statusError{max(exit.ExitCode(), 1), fmt.Sprintf("inspect eval ended with %s", exit)}
			}
			return err
		case sent := <-a.Signals:
			if stopped {
				_ = inspect.Kill() // It may have ended.
				continue
			}
			stopped, late = true, time.After(inspectGrace)
			if a.StderrWidth() == 0 {
				_ = inspect.Signal(sent)
			}
		case <-late:
			a.note("inspect did not end within %s of the interrupt; it is killed", inspectGrace)
			_ = inspect.Kill()
			late = nil
		}
	}
}

// secret is the token of the server.
func (s *session) secret(ctx context.Context) (string, error) {
	if s.here != nil {
		token := s.here.Token()
		return token.Reveal(), nil
	}
	token, err := s.app.token(ctx)
	return token.Reveal(), err
}

// shellLine is a command line as a person would type it.
func shellLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = shellQuote(arg)
	}
	return strings.Join(quoted, " ")
}
