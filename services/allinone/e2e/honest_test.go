package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A deviation of an evaluation from its specification is refused before it runs, or reported once: in the terminal, in
// its journal and in its log.
func TestWhatAnEvaluationDoesNotDoAsAskedIsSaid(t *testing.T) {
	t.Parallel()
	v := startVendors(t)
	h := newHome(t, &shipped, single, "ANTHROPIC_API_KEY=vendor-key", "ANTHROPIC_BASE_URL="+v.anthropic.URL, "OPENAI_API_KEY=k")
	h.serve()
	task := h.write("honest.yaml", "dataset: [{input: Say hello., target: hello there}, {input: Say it again., target: hello there}]\nscorer: includes\n")
	const (
		warning = "temperature is not sent to anthropic/claude-sonnet-4-5, which does not take it"
		another = "extra_body.own is not sent to anthropic/claude-sonnet-4-5, which does not take it"
		config  = "config={temperature: 0.3, max_tokens: 50, extra_body: {own: 7, service_tier: auto}}"
	)
	sent := object{"max_tokens": 50.0, "extra_body": object{"service_tier": "auto"}}

	claude := []string{"-m", "anthropic/claude-sonnet-4-5"}
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"a limit of dollars without a price": {
			[]string{"-m", "anthropic/claude-of-tomorrow", "--set", "limits.cost=0.01"}, "limits.cost bounds dollars, and the price of anthropic/claude-of-tomorrow is not known",
		},
		"an argument for another cloud": {[]string{"-m", "openai/gpt-5", "-M", "aws_region=us-east-1"}, "-M: aws_region is for models on Bedrock"},
		"a provider that is not there":  {append(claude, "--set", "solver=[generate, {react: {model: nosuch/m}}]"), `solver[1]: parameters model: no provider "nosuch"`},
		"batches that the model lacks":  {[]string{"-m", "mockllm/model", "--set", "config={batch: true}"}, "config.batch: mockllm/model has no batch API here"},
		"batches that the model lacks, of a step": {
			[]string{"-m", "mockllm/model", "--set", "solver={generate: {config: {batch: true}}}"}, "solver[0]: parameters config.batch: mockllm/model has no batch API here",
		},
	} {
		place := task + ": "
		if strings.HasPrefix(tt.says, "-") {
			place = "evalfleet: "
		}
		for _, check := range [][]string{nil, {"--check"}} {
			s := h.run(append(append([]string{"eval", "run", task}, tt.args...), check...)...)
			assert.Equal(t, 2, s.code, name)
			assert.Contains(t, s.err, place+tt.says, name)
		}
	}
	assert.Empty(t, at(h.rest().ok(t, http.MethodGet, "/api/v1/projects/default/evals", nil), "evals"), "nothing was made")
	spec := object{"task": "t", "models": []any{object{"model": "mockllm/model"}}, "config": object{"batch": object{"enabled": true}}, "dataset": object{"inline": object{"samples": []any{
		object{"input": []any{object{"role": "ROLE_USER", "content": object{"text": "q"}}}},
	}}}}
	status, answer := h.rest().do(t, http.MethodPost, "/api/v1/projects/default/evals", object{"spec": spec})
	assert.Equal(t, http.StatusBadRequest, status, answer)

	checked := h.run("eval", "run", task, "-m", "anthropic/claude-sonnet-4-5", "--set", config, "--check")
	assert.Zero(t, checked.code, checked.err)
	assert.Contains(t, checked.err, "warning: "+warning+"\nwarning: "+another+"\n")

	const ofStep = "solver=[{generate: {config: {temperature: 0.3}}}, generate]"
	checked = h.run("eval", "run", task, "-m", "anthropic/claude-sonnet-4-5", "--set", ofStep, "--check")
	assert.Zero(t, checked.code, checked.err)
	assert.Equal(t, 1, strings.Count(checked.err, "warning: "+warning), checked.err)

	checked = h.run("eval", "run", task, "-m", "openai/gpt-4o", "-M", "streaming=false", "-M", "responses_store=true", "--set", "config={stream_idle_timeout: 5}", "--check")
	assert.Zero(t, checked.code, checked.err)
	assert.Contains(t, checked.err, "warning: stream_idle_timeout is not sent to openai/gpt-4o, whose answers are not streamed\n"+
		"warning: model_args.responses_store is not sent to openai/gpt-4o, since chat completions do not take it\n")

	ran := h.run("eval", "run", task, "-m", "anthropic/claude-sonnet-4-5", "--set", config)
	require.Zero(t, ran.code, ran.err)
	assert.Equal(t, 1, strings.Count(ran.err+ran.out, warning), "not once a sample, and not again at the end: %s%s", ran.err, ran.out)
	assert.Contains(t, ran.out, "2 warnings, see above")
	made := at(h.rest().ok(t, http.MethodGet, "/api/v1/projects/default/evals", nil), "evals", 0)
	assert.Equal(t, []any{
		object{"message": warning, "model": "anthropic/claude-sonnet-4-5", "unsentOptions": []any{"temperature"}},
		object{"message": another, "model": "anthropic/claude-sonnet-4-5", "unsentOptions": []any{"extra_body.own"}},
	}, at(made, "warnings"))
	name, _ := at(made, "name").(string)

	exported := h.run("logs", "export", name, "--format", "json", "-o", "-")
	require.Zero(t, exported.code, exported.err)
	var log object
	require.NoError(t, json.Unmarshal([]byte(exported.out), &log))
	assert.Equal(t, sent, at(log, "plan", "config"))
	calls := 0
	var lines []any
	samples, _ := at(log, "samples").([]any)
	for _, sample := range samples {
		events, _ := at(sample, "events").([]any)
		for _, event := range events {
			switch at(event, "event") {
			case "logger":
				assert.Equal(t, "warning", at(event, "message", "level"))
				lines = append(lines, at(event, "message", "message"))
			case "model":
				calls++
				assert.Equal(t, sent, at(event, "config"))
			}
		}
	}
	assert.Equal(t, []any{warning, another}, lines)
	assert.Equal(t, 2, calls)
}

// A solver's own model does not receive the evaluation's options: that is reported once, and so are the evaluation's
// model and roles that are never called. The log omits options that no call had.
func TestOptionsThatASolversModelIsNotGivenAreSaid(t *testing.T) {
	t.Parallel()
	v := startVendors(t)
	h := newHome(t, &shipped, single, "ANTHROPIC_API_KEY=vendor-key", "ANTHROPIC_BASE_URL="+v.anthropic.URL, "OPENAI_API_KEY=k")
	h.serve()
	task := h.write("own.yaml", `
dataset: [{input: Say hello., target: hello there}]
scorer: includes
model: {name: openai/gpt-4o, config: {temperature: 0.3, max_tokens: 50}}
model_roles: {grader: {name: openai/gpt-4o-mini, config: {seed: 7}}}
config: {top_k: 5, max_retries: 2}
solver: {react: {model: anthropic/claude-sonnet-4-5, submit: false}}
`)
	const (
		ungiven = "top_k of config is not given to anthropic/claude-sonnet-4-5, the model that react names; config of a model role can set it"
		model   = "the model openai/gpt-4o is never called, and its config (max_tokens, temperature) is not used: react names anthropic/claude-sonnet-4-5"
		role    = "the role grader (openai/gpt-4o-mini) is never called, and its config (seed) is not used: no solver names it"
	)
	checked := h.run("eval", "run", task, "--check")
	require.Zero(t, checked.code, checked.err)
	ran := h.run("eval", "run", task)
	require.Zero(t, ran.code, ran.err)
	for _, s := range []string{checked.err, ran.err} {
		assert.Equal(t, 3, strings.Count(s, "warning: "), s)
		assert.Contains(t, s, "warning: "+ungiven+"\nwarning: "+model+"\nwarning: "+role+"\n")
	}
	made := at(h.rest().ok(t, http.MethodGet, "/api/v1/projects/default/evals", nil), "evals", 0)
	assert.Equal(t, []any{
		object{"message": ungiven, "model": "anthropic/claude-sonnet-4-5", "unsentOptions": []any{"top_k"}, "field": "spec.config"},
		object{"message": model, "model": "openai/gpt-4o", "unsentOptions": []any{"max_tokens", "temperature"}, "field": "spec.model"},
		object{"message": role, "model": "openai/gpt-4o-mini", "unsentOptions": []any{"seed"}, "field": `spec.model_roles["grader"]`},
	}, at(made, "warnings"))
	name, _ := at(made, "name").(string)
	exported := h.run("logs", "export", name, "--format", "json", "-o", "-")
	require.Zero(t, exported.code, exported.err)
	var log object
	require.NoError(t, json.Unmarshal([]byte(exported.out), &log))
	assert.Equal(t, object{"max_retries": 2.0}, at(log, "plan", "config"))
	assert.Equal(t, object{}, at(log, "eval", "model_generate_config"))
	assert.Equal(t, object{}, at(log, "eval", "model_roles", "grader", "config"))
	events, _ := at(log, "samples", 0, "events").([]any)
	var lines []any
	for _, event := range events {
		if at(event, "event") == "logger" {
			lines = append(lines, at(event, "message", "message"))
		}
	}
	assert.Equal(t, []any{ungiven, model, role}, lines)
}
