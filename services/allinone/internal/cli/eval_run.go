package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/taskfile"
	"github.com/evalfleet/evalfleet/services/allinone/internal/revision"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/sandboxd"
)

// evalFlags change a task file for one evaluation.
type evalFlags struct {
	models     []string
	modelArgs  []string
	limit      string
	sampleIDs  []string
	epochs     int32
	maxSamples int32
	driver     string
	sets       []string
	tags       []string
	check      bool
	logs       logDirFlags
}

func (a *app) evalRunCommand() *cobra.Command {
	var f evalFlags
	c := &cobra.Command{
		Use:   "run TASK_FILE",
		Short: "Run an evaluation and follow it to its results",
		Long: `Run makes an evaluation of a task file and follows it to its results. Flags win over the file.

Where no server holds the data directory, one is started in this process. An interrupt (Ctrl-C) cancels the evaluation; evalfleet eval resume continues it. The exit code is 1 when the
evaluation failed.

The log that Inspect reads is written while the evaluation runs and at its end, into the folder logs or the one that --log-dir names; inspect view shows it.`,
		Example: `  evalfleet eval run task.yaml
  evalfleet eval run task.yaml -m openai/gpt-4o -m openai/gpt-4o-mini --limit 10
  evalfleet eval run task.yaml --sample-id 'HumanEval/1*' --epochs 5
  evalfleet eval run task.yaml --set dataset.file=/data/rows.jsonl --set limits.time=2m
  evalfleet eval run task.yaml -m mockllm/model -M script=answers.yaml
  evalfleet eval run task.yaml --check                only check the file and all it names`,
		Args: one("a task file, such as examples/demo/task.yaml"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, flag := range []struct {
				name  string
				value int32
				why   string
			}{{"epochs", f.epochs, "every sample runs at least once"}, {"max-samples", f.maxSamples, "at least one sample is at work"}} {
				if c.Flags().Changed(flag.name) && flag.value < 1 {
					return usage("--%s %d: %s; leave the flag out for what the task file says", flag.name, flag.value, flag.why)
				}
			}
			if c.Flags().Changed("limit") && f.limit == "" { // A variable that is not set, say, is not for all samples.
				_, err := sampleRange(f.limit)
				return err
			}
			logDir, err := f.logs.folder(a)
			if err != nil {
				return err
			}
			loading, stop := a.untilInterrupt(c.Context())
			task, err := a.loadTask(loading, args[0], f)
			stop()
			if interrupted(loading) {
				return errInterrupted
			}
			if err != nil {
				return err
			}
			task.Spec.Revision = revision.Of(c.Context(), filepath.Dir(args[0]))
			return a.work(c.Context(), func(ctx context.Context, s *session) error {
				s.again, s.logFlags, s.given = rerunOf(c, args[0]), f.logs.words(c), c.Flags().Changed
				return s.runEval(ctx, task, f.check, logDir)
			})
		},
	}
	flags := c.Flags()
	flags.StringArrayVarP(&f.models, "model", "m", nil, "model, provider/name, instead of the file's; again for several")
	flags.StringArrayVarP(&f.modelArgs, "model-arg", "M", nil, "argument of the models, name=value; relative paths start here")
	flags.StringVar(&f.limit, "limit", "", "only the first so many samples, or a range start:end from 0")
	flags.StringArrayVar(&f.sampleIDs, "sample-id", nil, "only samples with this id; * and ? match; again for several")
	flags.Int32Var(&f.epochs, "epochs", 0, "run every sample so often")
	flags.Int32Var(&f.maxSamples, "max-samples", 0, "samples at work at once")
	flags.StringVar(&f.driver, "driver", "", "sandbox driver, such as local")
	flags.StringArrayVar(&f.sets, "set", nil, "set a key of the task file, key.key=YAML; again for several; relative paths start at the file")
	flags.StringArrayVar(&f.tags, "tag", nil, "tag; again for several")
	flags.BoolVar(&f.check, "check", false, "only check: names, rows of the dataset, parameters; run nothing")
	flags.BoolVar(&a.allowUnisolated, "allow-unisolated", false, "let sandboxes be made although a part of their isolation is missing on this machine")
	f.logs.add(c)
	c.SetFlagErrorFunc(inspectFlag)
	a.completeFlag(c, "driver", offerDrivers, sandboxd.Drivers)
	a.completeFlag(c, "model", offerModels, modelgw.Models)
	return c
}

// loadTask reads a task file with the flags laid over it.
func (a *app) loadTask(ctx context.Context, path string, f evalFlags) (*taskfile.Task, error) {
	var changes []taskfile.Change
	for _, text := range f.sets {
		change, err := taskfile.ParseChange(text)
		if err != nil {
			return nil, usage("--set %w", err)
		}
		changes = append(changes, change)
	}
	task, err := taskfile.Load(ctx, path, changes...)
	if err != nil {
		return nil, usageError{&taskFileError{err}}
	}
	return task, a.override(ctx, task, f)
}

// override lays the flags over what the file says.
func (a *app) override(ctx context.Context, task *taskfile.Task, f evalFlags) error {
	if f.limit != "" && len(f.sampleIDs) > 0 {
		return usage("--limit and --sample-id exclude each other")
	}
	if len(f.models)+len(task.Spec.GetModels()) == 0 {
		return usage("%s names no model; give one with -m PROVIDER/MODEL", task.Spec.GetTaskFile())
	}
	o := taskfile.Override{
		Models: f.models, SampleIDs: f.sampleIDs, Epochs: f.epochs, MaxSamples: f.maxSamples,
		Driver: f.driver, AllowUnisolated: a.allowUnisolated, Tags: f.tags,
	}
	var err error
	if o.ModelArgs, err = pairs("-M", f.modelArgs); err != nil {
		return err
	}
	if f.limit != "" {
		if o.Limit, err = sampleRange(f.limit); err != nil {
			return err
		}
	}
	if err := task.Override(ctx, o, nil); err != nil {
		return usageError{err}
	}
	if f.driver != "" && len(taskfile.Sandboxes(task.Spec)) == 0 {
		a.note("warning: --driver %s has no effect: %s describes no sandbox", f.driver, task.Spec.GetTaskFile())
	}
	for _, m := range task.Spec.GetModels() {
		if err := checkModelName(m.GetModel()); err != nil {
			return err
		}
	}
	return nil
}

// pairs reads name=value texts.
func pairs(flag string, texts []string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usage("%s %q: write name=value", flag, text)
		}
		all[name] = value
	}
	return all, nil
}

// sampleRange reads `10` or `5:10`.
func sampleRange(text string) (*agentv1.SampleRange, error) {
	from, to, isRange := strings.Cut(text, ":")
	if !isRange {
		from, to = "0", text
	}
	start, err1 := strconv.ParseInt(from, 10, 32)
	end, err2 := strconv.ParseInt(to, 10, 32)
	if err1 != nil || err2 != nil || start < 0 || end <= start {
		return nil, usage("--limit %q: write how many, such as 10, or a range, such as 5:10", text)
	}
	return &agentv1.SampleRange{Start: int32(start), End: int32(end)}, nil
}

// createEval uploads what the evaluation names and makes it. An interrupt ends the wait. An evaluation that was made
// all the same is returned with errInterrupted, or, where its answer did not come, is listed.
func (s *session) createEval(ctx context.Context, task *taskfile.Task, req *agentv1.CreateEvalRequest) (eval *agentv1.Eval, err error) {
	ctx, stop := s.app.untilInterrupt(ctx)
	defer stop()
	if err = s.upload(ctx, task.Bodies); err == nil {
		err = again(ctx, func() (err error) { // With its key a repeated request is the same one.
			eval, err = s.evals.CreateEval(ctx, req)
			return err
		})
		if err != nil {
			err = tooLarge(inFileWords(err, task.Spec, s.given))
		}
	}
	if interrupted(ctx) {
		err = errInterrupted
	}
	return eval, err
}

// tooLarge explains what to do about a task file that is too large as a request: large texts are uploaded, many small
// samples are not.
func tooLarge(err error) error {
	fault, ok := rpcerr.As(err)
	if !ok || fault.Reason != errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE || fault.Metadata["field"] != "" {
		return err
	}
	return fmt.Errorf("%w; move the samples into a file: `dataset: samples.jsonl`", err)
}

// runEval makes the evaluation and follows it.
func (s *session) runEval(ctx context.Context, task *taskfile.Task, check bool, logDir string) error {
	req := &agentv1.CreateEvalRequest{Parent: s.app.parent(), Spec: task.Spec, RequestId: resource.NewID(), ValidateOnly: check}
	eval, err := s.createEval(ctx, task, req)
	if errors.Is(err, errInterrupted) && eval != nil && !check {
		logs := s.keepLogs(ctx, eval, logDir)
		defer logs.leave()
		return s.abandon(ctx, eval, time.Now(), logs)
	}
	if err != nil {
		return err
	}
	for _, w := range eval.GetWarnings() {
		s.app.note("warning: %s", w.GetMessage())
	}
	s.warned = true
	if check {
		s.app.note("%s is fine: %d samples, model %s", task.Spec.GetTaskFile(), eval.GetProgress().GetTotal(), models(task.Spec))
		return nil
	}
	return s.own(ctx, eval, logDir)
}
