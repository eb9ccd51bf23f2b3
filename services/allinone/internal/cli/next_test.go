package cli_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// What is offered next keeps the options that say what the task is, can be run as it stands, and is what one would want next.
func TestTheNextCommandIsTheNextUsefulThing(t *testing.T) {
	t.Parallel()
	file := task(t, 1)
	options := []string{"--set", "limits={turns: 5}", "--set", "metadata.who=it's me", "--driver", "local", "--tag", "t", "--no-log"}
	const kept = ` --driver local --no-log --set 'limits={turns: 5}' --set 'metadata.who=it'\''s me' --tag t`
	for name, tt := range map[string]struct {
		model  string
		keyed  []string
		args   []string
		change func(e *agentv1.Eval)
		want   string
	}{
		"a scripted model, no key":  {"mockllm/he", nil, []string{"-m", "mockllm/he", "-M", "script=" + file}, nil, "next      evalfleet eval run FILE" + kept + " -m openai/gpt-4o --limit 5 FLAGS\n          where OPENAI_API_KEY is set\n"},
		"a scripted model, a key":   {"mockllm/he", []string{"anthropic"}, nil, nil, "next      evalfleet eval run FILE" + kept + " -m anthropic/claude-sonnet-4-5 --limit 5 FLAGS\n"},
		"a real model, few samples": {"openai/gpt-4o", nil, []string{"-m", "openai/gpt-4o", "-M", "n=1", "--limit", "5"}, nil, "next      evalfleet eval run FILE" + kept + " -m openai/gpt-4o -M n=1 FLAGS\n"},
		"a real model":              {"openai/gpt-4o", nil, []string{"-m", "openai/gpt-4o"}, nil, ""},
		"half of it wrong": {"openai/gpt-4o", nil, []string{"--limit", "5"}, func(e *agentv1.Eval) {
			*e.Results.Scores[0].Metrics[0].Value = 0.5
		}, "next      evalfleet logs e1 --failed FLAGS\n"},
		"limits were met": {"mockllm/he", []string{"openai"}, nil, func(e *agentv1.Eval) { e.Progress.Limited = 2 }, "next      evalfleet logs e1 --failed FLAGS\n" +
			"          evalfleet eval run FILE" + kept + " -m openai/gpt-4o --limit 5 FLAGS\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{eval: at(running, 0), keyed: tt.keyed}
			s.watch = func(_ int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
				end := at(succeeded, 4)
				end.Spec.Models[0].Model = tt.model
				if tt.change != nil {
					tt.change(end)
				}
				return stream.Send(&agentv1.WatchEvalResponse{Progress: s.become(end)})
			}
			flags := serve(t, s)
			c := begin(t, append(append(append(flags, "eval", "run", file), options...), tt.args...)...)
			require.Equal(t, 0, c.end(t), c.stderr.String())
			_, after, _ := strings.Cut(c.stdout.String(), "log       ")
			_, next, _ := strings.Cut(after, "\n")
			assert.Equal(t, tt.want, strings.NewReplacer(strings.Join(flags, " "), "FLAGS", file, "FILE").Replace(next))
		})
	}
}

// An evaluation that was interrupted has no results, and samples of it were scored all the same.
func TestAnInterruptShowsTheScoresOfWhatWasFinished(t *testing.T) {
	t.Parallel()
	grade := func(text string) *agentv1.EvalSample {
		value := &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: text}}
		return &agentv1.EvalSample{State: agentv1.RunState_RUN_STATE_SUCCEEDED, Scores: []*agentv1.NamedScore{{Name: "match", Score: &agentv1.Score{Value: value}}}}
	}
	s := &server{eval: at(running, 0), samples: []*agentv1.EvalSample{grade("C"), grade("I"), grade("C"), {State: agentv1.RunState_RUN_STATE_CANCELLED}}}
	watching := make(chan bool, 1)
	s.watch = waits(s, watching)
	c := begin(t, append(serve(t, s), "eval", "run", task(t, 1))...)
	waittest.For(t, watching, "the watch of the evaluation")
	c.signals <- os.Interrupt
	assert.Equal(t, 130, c.end(t))
	assert.Contains(t, c.stdout.String(), "SCORER  SAMPLES  MEAN SO FAR\nmatch   3        0.667\n")
}

func TestFollowingAnEvaluationWritesALineForEachSampleThatEnds(t *testing.T) {
	t.Parallel()
	ends := func(f *agentv1.SampleFinished) *agentv1.WatchEvalResponse {
		return &agentv1.WatchEvalResponse{Event: &agentv1.Event{Kind: &agentv1.Event_SampleFinished{SampleFinished: f}}}
	}
	for state, code := range map[agentv1.EvalState]int{succeeded: 0, failed: 1, cancelled: 1} {
		s := &server{eval: at(running, 0)}
		s.watch = func(_ int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
			for _, f := range []*agentv1.SampleFinished{
				{Sample: "a", Epoch: 1, State: agentv1.RunState_RUN_STATE_SUCCEEDED, Turns: 1},
				{Sample: "b", Epoch: 2, State: agentv1.RunState_RUN_STATE_FAILED, Turns: 3, Retries: 2, Error: &agentv1.RunError{Message: "openai answered 500"}},
			} {
				if err := stream.Send(ends(f)); err != nil {
					return err
				}
			}
			s.become(at(state, 4))
			return nil
		}
		flags := serve(t, s)
		c := begin(t, append(flags, "logs", "e1", "--follow")...)
		assert.Equal(t, code, c.end(t), c.stderr.String())
		assert.Equal(t, "a · succeeded · 1 turn · 0 tokens · 0s\nb, epoch 2 · failed · 3 turns · 0 tokens · 0s · 2 retries · openai answered 500\n", c.stdout.String())
		assert.Contains(t, c.stderr.String(), "e1 "+strings.ToLower(strings.TrimPrefix(state.String(), "EVAL_STATE_"))+" · 4 samples")
		c = begin(t, append(flags, "logs", "e1", "-f", "--failed", "--json")...)
		assert.Equal(t, code, c.end(t), c.stderr.String())
		assert.Equal(t, 1, strings.Count(c.stdout.String(), "\n"))
		assert.Contains(t, c.stdout.String(), `"retries":2`)
	}
}

// A run says once what of its options its model is not sent, as eval run does.
func TestARunWarnsOfOptionsThatAreNotSent(t *testing.T) {
	t.Parallel()
	answered := &agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
		Content: &agentv1.ModelOutcomeContent{Warnings: []string{"temperature is not sent to anthropic/claude: the API refuses it"}},
	}}}
	c := begin(t, append(serve(t, &server{events: []*agentv1.Event{answered, answered}}), "run", "-m", "anthropic/claude", "hello")...)
	require.Equal(t, 0, c.end(t), c.stderr.String())
	assert.Equal(t, 1, strings.Count(c.stderr.String(), "warning: temperature is not sent to anthropic/claude: the API refuses it\n"), c.stderr.String())
}

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
