package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// rerun is how eval run was called, so that another run of the same task can be offered.
type rerun struct {
	file string
	// options are those that say what the task is and how it runs, models those that say which models, and ids those
	// that select samples by their ids; all are written for a shell. limited is set where --limit was given.
	options, models, ids []string
	limited              bool
}

// rerunOf takes the options of a call of eval run apart.
func rerunOf(c *cobra.Command, file string) *rerun {
	r := &rerun{file: file}
	c.Flags().Visit(func(f *pflag.Flag) {
		if c.InheritedFlags().Lookup(f.Name) != nil {
			return // app.next adds those that lead to the server.
		}
		switch f.Name {
		case "model", "model-arg":
			r.models = append(r.models, written(f)...)
		case "sample-id":
			r.ids = written(f)
		case "limit":
			r.limited = true
		default:
			r.options = append(r.options, written(f)...)
		}
	})
	return r
}

// written are the words that set a flag, for a shell.
func written(f *pflag.Flag) []string {
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand
	}
	var words []string
	for _, value := range values {
		switch {
		case f.Value.Type() != "bool":
			words = append(words, name, shellQuote(value))
		case value == "true":
			words = append(words, name)
		default:
			words = append(words, name+"="+value)
		}
	}
	return words
}

// command is a call of eval run with other models or other samples.
func (r *rerun) command(models, samples []string) string {
	return strings.Join(slices.Concat([]string{"eval run", shellQuote(r.file)}, r.options, models, samples), " ")
}

// scripted is the provider of models whose answers are in a script.
const scripted = "mockllm/"

// poor reports whether what went wrong in an evaluation is the next thing to look at.
func poor(e *agentv1.Eval) bool {
	p := e.GetProgress()
	if p.GetFailed() > 0 || p.GetSandboxFaults() > 0 || p.GetLimited() > 0 {
		return true
	}
	for _, s := range e.GetResults().GetScores() {
		for _, m := range s.GetMetrics() {
			return m.Value != nil && m.GetKey() == "accuracy" && m.GetValue() <= 0.5
		}
	}
	return false
}

// showNext writes the next useful commands after an evaluation that succeeded: to see what went wrong, to run the same
// task with a real model after a scripted one, and with all samples after some.
func (s *session) showNext(ctx context.Context, e *agentv1.Eval) {
	a, r := s.app, s.again
	mock := !slices.ContainsFunc(e.GetSpec().GetModels(), func(m *agentv1.ModelRef) bool { return !strings.HasPrefix(m.GetModel(), scripted) })
	var lines []string
	if poor(e) {
		lines = append(lines, a.next("logs %s --failed", short(e.GetName())))
	}
	switch {
	case r == nil: // The command was not eval run.
	case mock:
		model, key := s.realModel(ctx)
		samples := r.ids
		if len(samples) == 0 {
			samples = []string{"--limit", "5"}
		}
		lines = append(lines, a.next("%s", r.command([]string{"-m", model}, samples)))
		switch {
		case key == "":
		case s.here != nil:
			lines = append(lines, "where "+key+" is set")
		default:
			lines = append(lines, "once the server was started where "+key+" is set")
		}
	case (r.limited || len(r.ids) > 0) && len(lines) == 0:
		lines = append(lines, a.next("%s", r.command(r.models, nil)))
	}
	for i, line := range lines {
		a.print("%-10s%s", []string{"next", ""}[min(i, 1)], line)
	}
}

// realModel is a model that is not scripted, of a provider whose default account has a key where there is one. Else key
// is the variable to set.
func (s *session) realModel(ctx context.Context) (model, key string) {
	candidates := []struct{ provider, model string }{
		{"openai", "openai/gpt-4o"},
		{"anthropic", "anthropic/claude-sonnet-4-5"},
		{"google", "google/gemini-2.5-flash"},
		{"grok", "grok/grok-4-fast"},
	}
	r, err := s.models.ListProviders(ctx, &modelv1.ListProvidersRequest{Parent: s.app.parent()})
	if err == nil {
		for _, c := range candidates {
			if slices.ContainsFunc(r.GetProviders(), func(p *modelv1.Provider) bool {
				return p.GetName() == c.provider && slices.ContainsFunc(p.GetAccounts(), func(a *modelv1.Account) bool {
					return a.GetName() == "default" && a.GetService() == "" && a.GetUsable()
				})
			}) {
				return c.model, ""
			}
		}
	}
	return candidates[0].model, keyVariables[candidates[0].provider]
}
