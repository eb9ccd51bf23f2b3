package cli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// The server names fields of its API; a person who wrote a task file knows that file's.
func TestErrorsAboutATaskFileHaveItsWords(t *testing.T) {
	t.Parallel()
	for api, want := range map[string]string{
		`spec.scorers[0]: params_json: unknown field "locaton"`:         `scorer[0]: parameters: unknown field "locaton"`,
		"spec.steps[1].tools: options_json: wrong":                      "solver[1].tools: parameters: wrong",
		"spec.steps[0]: params_json/on_continue: leave it out":          "solver[0]: parameters on_continue: leave it out",
		"spec.model: model_args_json: unknown field \"x\"":              `model: args: unknown field "x"`,
		"spec.dataset.inline.samples[3].input: a sample needs an input": "dataset[3].input: a sample needs an input",
		`spec.sandboxes["default"]: no`:                                 "sandbox: no",
		"spec.limit: no sample is left":                                 "samples.limit: no sample is left",
		"spec.limits: no":                                               "limits: no",
		"spec.dataset: my.spec.jsonl: column params_json is no text":    "dataset: my.spec.jsonl: column params_json is no text",
		"spec.dataset.inline.samples[3].metadata_json: no":              "dataset[3].metadata: no",
		`spec.sandboxes["my box"]: spec.image: no`:                      `sandbox.environments["my box"].image: no`,
		"the file spec.jsonl has no options_json":                       "the file spec.jsonl has no options_json",
	} {
		c := begin(t, append(serve(t, &server{refusal: rpcerr.InvalidRequest("%s", api)}), "eval", "run", task(t, 1))...)
		assert.Equal(t, 2, c.end(t))
		assert.Contains(t, c.stderr.String(), "task.yaml: "+want+"\n")
	}
}

func TestWhatIsNotBuiltInSaysWhatThereIsInstead(t *testing.T) {
	t.Parallel()
	for want, refusal := range map[string]error{
		"is served by a worker: docs/workers.md": rpcerr.ScorerNotFound("model_graded_qa", nil),
		"set base_url and api_key in modelgw.openai_api.services.together of the server's configuration (docs/config.md); TOGETHER_BASE_URL and TOGETHER_API_KEY, which Inspect reads, are not read": rpcerr.ProviderNotConfigured("openai-api", "together", "openai-api has no account"),
	} {
		c := begin(t, append(serve(t, &server{refusal: refusal}), "eval", "run", task(t, 1))...)
		assert.NotEqual(t, 0, c.end(t))
		assert.Contains(t, c.stderr.String(), want)
	}
}
