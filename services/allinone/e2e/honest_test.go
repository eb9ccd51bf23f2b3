package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What an evaluation would not do as it is asked to is refused before it runs, or said once: in the terminal, in its
// journal and in its log.
func TestWhatAnEvaluationDoesNotDoAsAskedIsSaid(t *testing.T) {
	t.Parallel()
	v := startVendors(t)
	h := newHome(t, &shipped, single, "ANTHROPIC_API_KEY=vendor-key", "ANTHROPIC_BASE_URL="+v.anthropic.URL, "OPENAI_API_KEY=k")
	h.serve()
	task := h.write("honest.yaml", "dataset: [{input: Say hello., target: hello there}, {input: Say it again., target: hello there}]\nscorer: includes\n")
	const (
		warning = "temperature is not sent to anthropic/claude-sonnet-4-5, which does not take it; " +
			"extra_body.own is not sent to anthropic/claude-sonnet-4-5, which does not take it"
		config = "config={temperature: 0.3, max_tokens: 50, extra_body: {own: 7, service_tier: auto}}"
	)
	sent := object{"max_tokens": 50.0, "extra_body": object{"service_tier": "auto"}}

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"a limit of dollars without a price": {[]string{"-m", "anthropic/claude-sonnet-4-5", "--set", "limits.cost=0.01"}, "PRICE"},
		"an API that is not built":           {[]string{"-m", "openai/gpt-5"}, "Responses API, which is not built yet"},
		"an option that is not built":        {[]string{"-m", "anthropic/claude-sonnet-4-5", "--set", "config={batch: true}"}, "batch processing is not built yet"},
	} {
		if tt.says == "PRICE" {
			tt.says = "limits.cost bounds dollars, and the price of anthropic/claude-sonnet-4-5 is not known"
		}
		for _, check := range [][]string{nil, {"--check"}} {
			s := h.run(append(append([]string{"eval", "run", task}, tt.args...), check...)...)
			assert.NotZero(t, s.code, name)
			assert.Contains(t, s.err, tt.says, name)
		}
	}
	assert.Empty(t, at(h.rest().ok(t, http.MethodGet, "/api/v1/projects/default/evals", nil), "evals"), "nothing was made")
	spec := object{"task": "t", "models": []any{object{"model": "mockllm/model"}}, "config": object{"batch": object{"size": 5}}, "dataset": object{"inline": object{"samples": []any{
		object{"input": []any{object{"role": "ROLE_USER", "content": object{"text": "q"}}}},
	}}}}
	status, answer := h.rest().do(t, http.MethodPost, "/api/v1/projects/default/evals", object{"spec": spec})
	assert.Equal(t, http.StatusNotImplemented, status, answer)

	checked := h.run("eval", "run", task, "-m", "anthropic/claude-sonnet-4-5", "--set", config, "--check")
	assert.Zero(t, checked.code, checked.err)
	assert.Contains(t, checked.err, "warning: "+warning)

	ran := h.run("eval", "run", task, "-m", "anthropic/claude-sonnet-4-5", "--set", config)
	require.Zero(t, ran.code, ran.err)
	assert.Equal(t, 1, strings.Count(ran.err, warning), "not once a sample: %s", ran.err)
	made := at(h.rest().ok(t, http.MethodGet, "/api/v1/projects/default/evals", nil), "evals", 0)
	assert.Equal(t, object{"message": warning, "model": "anthropic/claude-sonnet-4-5", "unsentOptions": []any{"temperature", "extra_body.own"}}, at(made, "warnings", 0))
	name, _ := at(made, "name").(string)

	exported := h.run("logs", "export", name, "--format", "json", "-o", "-")
	require.Zero(t, exported.code, exported.err)
	var log object
	require.NoError(t, json.Unmarshal([]byte(exported.out), &log))
	assert.Equal(t, sent, at(log, "plan", "config"))
	lines, calls := 0, 0
	samples, _ := at(log, "samples").([]any)
	for _, sample := range samples {
		events, _ := at(sample, "events").([]any)
		for _, event := range events {
			switch at(event, "event") {
			case "logger":
				lines++
				assert.Equal(t, []any{"warning", warning}, []any{at(event, "message", "level"), at(event, "message", "message")})
			case "model":
				calls++
				assert.Equal(t, sent, at(event, "config"))
			}
		}
	}
	assert.Equal(t, []int{1, 2}, []int{lines, calls})
}
