package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// The server names fields of its API; the author of a task file sees the keys of that file.
func TestErrorsAboutATaskFileHaveItsWords(t *testing.T) {
	t.Parallel()
	for api, want := range map[string]string{
		`spec.scorers[0].params_json/locaton: is not known`:             `scorer[0]: parameters locaton: is not known`,
		"spec.steps[0].params_json/on_continue: leave it out":           "solver[0]: parameters on_continue: leave it out",
		"spec.models[0].model_args_json: unknown field \"x\"":           `model.args: unknown field "x"`,
		`spec.models[0].model: "gpt" is no model`:                       `model: "gpt" is no model`,
		"spec.tools[0].options_json: tool bash: no":                     "tools[0]: parameters: tool bash: no",
		"spec.steps[1].tools[2].options_json: tool bash: no":            "solver[1].tools[2]: parameters: tool bash: no",
		"spec.tools[0].name: unknown tool":                              "tools[0].name: unknown tool",
		`spec.sandboxes["default"].driver_config_json: no`:              "sandbox.config: no",
		`spec.sandboxes["web"].driver_config_json: no`:                  `sandbox.environments["web"].config: no`,
		"spec.dataset.inline.samples[3].input: a sample needs an input": "dataset[3].input: a sample needs an input",
		`spec.sandboxes["default"]: no`:                                 "sandbox: no",
		"spec.limit: no sample is left":                                 "samples.limit: no sample is left",
		"spec.limits.cost bounds dollars":                               "limits.cost bounds dollars",
		"spec.config.extra_body_json: no":                               "config.extra_body: no",
		"spec.steps[1].params_json/model: no":                           "solver[1]: parameters model: no",
		"spec.steps[0].params_json/template: sample 3: too much":        "solver[0]: parameters template: sample 3: too much",
		"spec.scorers[1].params_json/files: sample a b: f: too much":    "scorer[1]: parameters files: sample a b: f: too much",
		"spec.dataset: sample 3: column params_json is no text":         "dataset: sample 3: column params_json is no text",
		"spec.epochs.count: too many":                                   "epochs: too many",
		"spec.limits: no":                                               "limits: no",
		"spec.dataset: my.spec.jsonl: column params_json is no text":    "dataset: my.spec.jsonl: column params_json is no text",
		"spec.dataset.inline.samples[3].metadata_json: no":              "dataset[3].metadata: no",
		`spec.sandboxes["my box"]: spec.image: no`:                      `sandbox.environments["my box"].image: no`,
		"the file spec.jsonl has no options_json":                       "the file spec.jsonl has no options_json",
	} {
		file := filepath.Join(filepath.Dir(task(t, 1)), "task.yaml")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append(text, "\ntools: [bash]\nsolver: [react, {react: {tools: [bash, think, bash]}}]\n"...), 0o600))
		c := begin(t, append(serve(t, &server{refusal: rpcerr.InvalidRequest("%s", api)}), "eval", "run", file)...)
		assert.Equal(t, 2, c.end(t))
		assert.Contains(t, c.stderr.String(), "task.yaml: "+want+"\n")
	}
}

// The value of a flag is named by the flag.
func TestErrorsAboutFlagsHaveTheirNames(t *testing.T) {
	t.Parallel()
	file := task(t, 1)
	for _, tt := range []struct {
		args      []string
		api, want string
	}{
		{[]string{"eval", "run", file, "-m", "foo/bar"}, `spec.models[0].model: no provider "foo"`, `evalfleet: --model: no provider "foo"`},
		{[]string{"eval", "run", file, "-M", "x=1"}, `spec.models[0].model_args_json: unknown argument "x"`, `evalfleet: -M: unknown argument "x"`},
		{[]string{"eval", "run", file, "-M", "x=1"}, `spec.models[0].model: no provider "foo"`, `task.yaml: model: no provider "foo"`},
		{[]string{"eval", "run", file, "--limit", "5"}, "spec.limit: no sample is left", "evalfleet: --limit: no sample is left"},
		{[]string{"eval", "run", file, "--epochs", "9"}, "spec.epochs.count: too many", "evalfleet: --epochs: too many"},
		{[]string{"eval", "run", file, "--sample-id", "z"}, "spec.sample_ids: none", "evalfleet: --sample-id: none"},
	} {
		c := begin(t, append(serve(t, &server{refusal: rpcerr.InvalidRequest("%s", tt.api)}), tt.args...)...)
		assert.Equal(t, 2, c.end(t))
		assert.Contains(t, c.stderr.String(), tt.want+"\n")
	}
}

// A metric or a reducer is none of a worker's.
func TestWhereMetricsAndReducersAreDescribed(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{rpcerr.MetricNotFound("acuracy", []string{"accuracy"}), rpcerr.ReducerNotFound("meen", []string{"mean"})} {
		c := begin(t, append(serve(t, &server{refusal: refusal}), "eval", "run", task(t, 1))...)
		assert.Equal(t, 2, c.end(t))
		assert.Contains(t, c.stderr.String(), "did you mean ")
		assert.Contains(t, c.stderr.String(), "docs/task-file.md")
		assert.NotContains(t, c.stderr.String(), "worker")
	}
}

func TestWhatIsNotBuiltInSaysWhatThereIsInstead(t *testing.T) {
	t.Parallel()
	for want, refusal := range map[string]error{
		"is served by a worker: docs/workers.md": rpcerr.ScorerNotFound("model_graded_qa", nil),
		"set base_url and api_key in modelgw.openai_api.services.together of the server's configuration (docs/config.md), or TOGETHER_BASE_URL and TOGETHER_API_KEY where the server starts": rpcerr.ProviderNotConfigured("openai-api", "together", "openai-api has no account"),
	} {
		c := begin(t, append(serve(t, &server{refusal: refusal}), "eval", "run", task(t, 1))...)
		assert.NotEqual(t, 0, c.end(t))
		assert.Contains(t, c.stderr.String(), want)
	}
}
