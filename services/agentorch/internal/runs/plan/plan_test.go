package plan_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/multichoice"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/prompt"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/exec"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newFleet(t *testing.T) *fleettest.Fleet {
	t.Helper()
	f := fleettest.New(t, fleettest.Parts{
		Open: func(ctx context.Context, db *sqlite.DB) (journal.Store, error) {
			return journalsqlite.Open(ctx, db, run.FoldRow)
		},
		Agents:  append(prompt.Definitions(), generate.Definition(), react.Definition(), multichoice.Definition(), closedDefinition()),
		Scorers: append(builtin.Definitions(), exec.Definition()),
	})
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("ok"))
	return f.Start()
}

// closedDefinition is an agent that does not declare which models it may call.
func closedDefinition() agent.Definition {
	return agent.Definition{
		Name: "closed", Parameters: `{"type": "object"}`,
		Resolve: func(*agentv1.AgentRef) error { return nil },
		New:     func(*agentv1.AgentRef) (agent.Machine, error) { return closed{}, nil },
	}
}

type closed struct{ agent.NoTools }

func (closed) Apply(*agentv1.Event) {}

func (closed) Next(agent.View) (agent.Action, error) {
	return agent.Action{Then: agent.Done{}}, nil
}

func TestAPlanPinsWhatDecidesTheCourse(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Tools.Tools["look"] = servicetest.Tool{}
	spec := fleettest.Spec(fleettest.Step("react", `{"attempts": 2}`), fleettest.Step("generate", "", "look"))
	spec.Tools = []*toolv1.ToolRef{{Name: "look"}}
	plan, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	assert.Equal(t, "p", plan.Project())
	pinned := plan.Spec()
	assert.Contains(t, pinned.GetSteps()[0].GetParamsJson(), "assistant_prompt", "prompts are written out")
	assert.Len(t, pinned.GetSteps()[0].GetTools(), 2, "the run's tool and its own")
	assert.JSONEq(t, `{"attempts": 2}`, spec.GetSteps()[0].GetParamsJson(), "what was given stays as it is")

	head, err := f.Runs.Start(t.Context(), plan, runs.Key{}, "user:ada")
	require.NoError(t, err)
	for e, err := range f.Events(head.Name) {
		require.NoError(t, err)
		var names []string
		for _, d := range e.GetRunCreated().GetTools() {
			names = append(names, d.GetInfo().GetName())
		}
		assert.Equal(t, []string{"submit", "look"}, names)
		assert.Equal(t, "user:ada", e.GetActor())
		break
	}
}

func TestWhatASampleLacksIsSaidOfTheSample(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for says, change := range map[string]func(*agentv1.RunSpec){
		"spec.steps[0]: sample b: ": func(s *agentv1.RunSpec) { s.Steps = []*agentv1.AgentRef{{Name: "multiple_choice"}} },
		"spec.scorers[0].params_json: sample b: ": func(s *agentv1.RunSpec) {
			s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"command": "echo {metadata.zz}"}`}}
			s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
		},
	} {
		spec := fleettest.Spec(fleettest.Step("generate", ""))
		spec.Attribution = &effectv1.Attribution{Sample: "b"}
		change(spec)
		require.ErrorContains(t, f.Runs.CheckSample("p", spec), says)
		_, err := f.Runs.Check(t.Context(), "p", spec)
		require.ErrorContains(t, err, says)
	}
}

// An evaluation that began before its targets were checked continues: a fault that is refused with the evaluation is
// not refused again with each run.
func TestTargetsOfAnEvaluationsRunsAreNotCheckedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(fleettest.Step("generate", ""))
	spec.Scorers = []*agentv1.ScorerRef{{Name: "match"}}
	_, err := f.Runs.Check(t.Context(), "p", spec)
	require.ErrorContains(t, err, "the scorer match needs a target")
	spec.Attribution = &effectv1.Attribution{Eval: "projects/p/evals/e", Sample: "s"}
	_, err = f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
}

func TestAModelMayNameItsAccount(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for name, c := range map[string]struct {
		model *agentv1.ModelRef
		says  string
	}{
		"its own":                {&agentv1.ModelRef{Model: "openai-api/local/llama"}, ""},
		"the default beside it":  {&agentv1.ModelRef{Model: "openai-api/local/llama", Account: "default"}, ""},
		"one beside it":          {&agentv1.ModelRef{Model: "openai-api/local/llama", Account: "local"}, `names its account, local; leave "local" out`},
		"one that is not there":  {&agentv1.ModelRef{Model: "openai-api/lokal/llama"}, `openai-api has no account "lokal"; configured are: keyless, local`},
		"one that has no key":    {&agentv1.ModelRef{Model: "openai-api/keyless/llama"}, "set api_key"},
		"none where there is no": {&agentv1.ModelRef{Model: "openai-api/llama"}, "write openai-api/account/name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fleettest.Spec(fleettest.Step("generate", ""))
			spec.Model = c.model
			_, err := f.Runs.Check(t.Context(), "p", spec)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			assert.ErrorContains(t, err, "spec.model")
		})
	}
}

func TestCheckRefusesWhatCanOnlyFail(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for name, c := range map[string]struct {
		change func(*agentv1.RunSpec)
		says   []string
	}{
		"arguments that the model does not take": {
			func(s *agentv1.RunSpec) { s.Model.ModelArgsJson = `{"bogus": 1}` }, []string{"spec.model", "bogus"},
		},
		"arguments of a role's model": {
			func(s *agentv1.RunSpec) {
				s.ModelRoles = map[string]*agentv1.ModelRef{"grader": {Model: "mockllm/g", ModelArgsJson: `{"bogus": 1}`}}
			}, []string{`spec.model_roles["grader"]`, "bogus"},
		},
		"a check program without a sandbox": {
			func(s *agentv1.RunSpec) {
				s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"command": "true"}`}}
			},
			[]string{"spec.scorers[0]", "add one named default, in a task file `sandbox: true`"},
		},
		"a check program of unknown metadata": {
			func(s *agentv1.RunSpec) {
				s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"command": "echo {metadata.zz}"}`}}
				s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
				s.MetadataJson = `{"test": 1}`
			}, []string{"spec.scorers[0]", "{metadata.zz}", "test"},
		},
		"many scorers": {
			func(s *agentv1.RunSpec) {
				s.Scorers = slices.Repeat([]*agentv1.ScorerRef{{Name: "includes"}}, bound.Scorers+1)
			}, []string{"spec.scorers: 101 are too many"},
		},
		"many steps": {
			func(s *agentv1.RunSpec) {
				s.Steps = slices.Repeat([]*agentv1.AgentRef{{Name: "generate"}}, bound.Steps+1)
			}, []string{"spec.steps: 101 are too many"},
		},
		"many tools": {
			func(s *agentv1.RunSpec) { s.Tools = slices.Repeat([]*toolv1.ToolRef{{}}, bound.Tools+1) }, []string{"spec.tools: 1001 are too many"},
		},
		"many tools of a step": {
			func(s *agentv1.RunSpec) {
				s.Steps = []*agentv1.AgentRef{{Name: "generate", Tools: slices.Repeat([]*toolv1.ToolRef{{}}, bound.Tools+1)}}
			}, []string{"spec.steps[0].tools: 1001 are too many"},
		},
		"a selection without choices": {
			func(s *agentv1.RunSpec) { s.Scorers = []*agentv1.ScorerRef{{Name: "choice"}} }, []string{"spec.scorers[0]", "choices"},
		},
		"a question without choices": {
			func(s *agentv1.RunSpec) { s.Steps = []*agentv1.AgentRef{{Name: "multiple_choice"}} }, []string{"spec.steps[0]", "choices"},
		},
		"a context window below nothing": {
			func(s *agentv1.RunSpec) {
				s.Steps = []*agentv1.AgentRef{{Name: "react", ParamsJson: `{"compaction": {"strategy": "trim"}}`, ContextWindows: map[string]int64{"": -1}}}
			}, []string{"spec.steps[0]", "context_windows", "-1"},
		},
		"a threshold that is a text": {
			func(s *agentv1.RunSpec) {
				s.Steps = []*agentv1.AgentRef{{Name: "react", ParamsJson: `{"compaction": {"strategy": "trim", "threshold": "0.9"}}`}}
			}, []string{"spec.steps[0]", "threshold"},
		},
		"a threshold of nothing": {
			func(s *agentv1.RunSpec) {
				s.Steps = []*agentv1.AgentRef{{Name: "react", ParamsJson: `{"compaction": {"strategy": "trim", "threshold": 0}}`}}
			}, []string{"spec.steps[0]", "threshold"},
		},
		"a comparison without a target": {
			func(s *agentv1.RunSpec) { s.Scorers = []*agentv1.ScorerRef{{Name: "match"}} }, []string{"spec.scorers[0]", "the scorer match needs a target"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fleettest.Spec(fleettest.Step("generate", ""))
			c.change(spec)
			_, err := f.Runs.Check(t.Context(), "p", spec)
			assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "%v", err)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
	assert.Empty(t, f.Models.Requests(), "no model was called")
}

// A bound on dollars that cannot be counted would bound nothing.
func TestABoundOnDollarsNeedsThePriceOfEveryModel(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	solver := fleettest.Step("react", `{"model": "mockllm/unpriced"}`)
	fallback := &modelv1.GenerateConfig{FallbackModels: &modelv1.StringList{Values: []string{"priced", "unpriced"}}}
	for name, c := range map[string]struct {
		change func(*agentv1.RunSpec)
		cost   *float64
		says   string
	}{
		"a price is known": {func(*agentv1.RunSpec) {}, new(0.5), ""},
		"no bound": {func(s *agentv1.RunSpec) {
			s.Model.Model, s.ModelRoles["grader"].Model, s.Steps, s.Config = "mockllm/unpriced", "mockllm/unpriced", []*agentv1.AgentRef{solver}, fallback
		}, nil, ""},
		"no price":                     {func(s *agentv1.RunSpec) { s.Model.Model = "mockllm/unpriced" }, new(0.5), "spec.limits.cost bounds dollars"},
		"no price, and nothing left":   {func(s *agentv1.RunSpec) { s.Model.Model = "mockllm/unpriced" }, new(0.0), "prices: {mockllm/unpriced: "},
		"no price of a role's model":   {func(s *agentv1.RunSpec) { s.ModelRoles["grader"].Model = "mockllm/unpriced" }, new(0.5), "spec.limits.cost bounds dollars"},
		"no price of a solver's model": {func(s *agentv1.RunSpec) { s.Steps = []*agentv1.AgentRef{solver} }, new(0.5), "the price of mockllm/unpriced"},
		"no price of the model of a later step": {
			func(s *agentv1.RunSpec) { s.Steps = append(s.Steps, solver) }, new(0.5), "the price of mockllm/unpriced",
		},
		"no price of a fallback model":            {func(s *agentv1.RunSpec) { s.Config = fallback }, new(0.5), "the price of mockllm/unpriced"},
		"no price of a fallback model of a role":  {func(s *agentv1.RunSpec) { s.ModelRoles["grader"].Config = fallback }, new(0.5), "the price of mockllm/unpriced"},
		"no price of a fallback model of a model": {func(s *agentv1.RunSpec) { s.Model.Config = fallback }, new(0.5), "the price of mockllm/unpriced"},
		"no price of a fallback model of a step": {func(s *agentv1.RunSpec) {
			s.Steps = []*agentv1.AgentRef{fleettest.Step("generate", `{"config": {"fallback_models": ["unpriced"]}}`)}
		}, new(0.5), "the price of mockllm/unpriced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fleettest.Spec(fleettest.Step("generate", ""))
			spec.ModelRoles = map[string]*agentv1.ModelRef{"grader": {Model: "mockllm/grader"}}
			c.change(spec)
			plan, err := f.Runs.Check(t.Context(), "p", spec)
			require.NoError(t, err)
			if c.cost == nil {
				return
			}
			limits := &agentv1.RunLimits{Cost: c.cost}
			later := f.Runs.CheckCost(t.Context(), "p", plan.Spec(), limits)
			spec.Limits = limits
			_, err = f.Runs.Check(t.Context(), "p", spec)
			if c.says == "" {
				require.NoError(t, err)
				require.NoError(t, later)
				return
			}
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN), "%v", err)
			require.ErrorContains(t, err, c.says)
			assert.True(t, rpcerr.Is(later, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN), "%v", later)
			assert.ErrorContains(t, later, "limits.cost bounds dollars")
		})
	}
}

// A model in a cloud needs the account there, and not that of the provider itself.
func TestAModelInACloudHasAnAccountOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(fleettest.Step("generate", ""))
	spec.Model = &agentv1.ModelRef{Model: "openai/azure/gpt-4o"}
	_, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	spec.Model.Account = "other"
	_, err = f.Runs.Check(t.Context(), "p", spec)
	require.ErrorContains(t, err, `openai/azure has no account "other"; configured are: default`)
	spec.Model = &agentv1.ModelRef{Model: "openai/gpt-4o"}
	_, err = f.Runs.Check(t.Context(), "p", spec)
	require.ErrorContains(t, err, "the account default of openai cannot be used: set OPENAI_API_KEY")
}

// A model that is not the run's own is refused before anything runs, too, at the place that names it.
func TestCheckRefusesAModelThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	batch := &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{Enabled: true}}
	for name, c := range map[string]struct {
		change func(*agentv1.RunSpec)
		reason errorsv1.ErrorReason
		says   string
	}{
		"a solver's provider": {
			func(s *agentv1.RunSpec) { s.Steps[1].ParamsJson = `{"model": "nosuch/m"}` },
			errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND, `spec.steps[1].params_json/model: no provider "nosuch"`,
		},
		"a name that is nearly a provider's": {
			func(s *agentv1.RunSpec) { s.Steps[1].ParamsJson = `{"model": "opnai/m"}` },
			errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND, `no provider "opnai" for the model opnai/m; did you mean openai? known are mockllm, openai`,
		},
		"a key for a solver's model": {
			func(s *agentv1.RunSpec) { s.Steps[1].ParamsJson = `{"model": "openai/gpt-4o"}` },
			errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "spec.steps[1].params_json/model: the account default of openai cannot be used: set OPENAI_API_KEY",
		},
		"a key for a solver's model in a cloud": {
			func(s *agentv1.RunSpec) { s.Steps[1].ParamsJson = `{"model": "openai/bedrock/gpt-oss"}` },
			errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "spec.steps[1].params_json/model: the account default of openai/bedrock cannot be used: set a region",
		},
		"a role that is not there": {
			func(s *agentv1.RunSpec) {
				s.ModelRoles = map[string]*agentv1.ModelRef{"grader": {Model: "mockllm/g"}, "judge": {Model: "mockllm/j"}}
				s.Steps[1].ParamsJson = `{"model": "jugde"}`
			},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST,
			`spec.steps[1].params_json/model: "jugde" is no model; write provider/name, such as mockllm/model, or a role of the run: grader, judge`,
		},
		"a batch of the run": {
			func(s *agentv1.RunSpec) { s.Config = batch }, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "spec.config.batch: mockllm/",
		},
		"a batch of the model": {
			func(s *agentv1.RunSpec) { s.Model.Config = batch }, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "spec.model.config.batch: mockllm/",
		},
		"a batch of a role's model": {
			func(s *agentv1.RunSpec) {
				s.ModelRoles = map[string]*agentv1.ModelRef{"grader": {Model: "mockllm/g", Config: batch}}
			},
			errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, `spec.model_roles["grader"].config.batch: mockllm/`,
		},
		"a batch of a step": {
			func(s *agentv1.RunSpec) {
				s.Config, s.Steps[0].ParamsJson = &modelv1.GenerateConfig{Temperature: new(0.5)}, `{"config": {"batch": true}}`
			},
			errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "spec.steps[0].params_json/config/batch: mockllm/",
		},
		"what a step's options need": {
			func(s *agentv1.RunSpec) {
				s.Model.Model, s.Steps[0].ParamsJson = "mockllm/plain", `{"config": {"reasoning_effort": "low"}}`
			},
			errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "spec.steps[0].params_json/config: mockllm/plain cannot think",
		},
		"a fallback model with its provider": {
			func(s *agentv1.RunSpec) {
				s.Config = &modelv1.GenerateConfig{FallbackModels: &modelv1.StringList{Values: []string{"mockllm/other"}}}
			},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "spec.config.fallback_models: write other, not mockllm/other",
		},
		"no model at all": {
			func(s *agentv1.RunSpec) { s.Model = nil }, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "spec.model: spec.steps[0] asks the run's model, and the run names none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fleettest.Spec(fleettest.Step("generate", ""), fleettest.Step("react", ""))
			c.change(spec)
			_, err := f.Runs.Check(t.Context(), "p", spec)
			assert.True(t, rpcerr.Is(err, c.reason), "%v", err)
			assert.ErrorContains(t, err, c.says)
			assert.Truef(t, err != nil && strings.HasPrefix(err.Error(), "spec."), "%v", err)
			if fault, ok := rpcerr.As(err); assert.True(t, ok) && assert.Len(t, fault.Fields, 1, "%v", err) {
				assert.True(t, strings.HasPrefix(err.Error(), fault.Fields[0].Path+": "), "the details name %s: %v", fault.Fields[0].Path, err)
			}
		})
	}
	assert.Empty(t, f.Models.Requests(), "no model was called")
}

func TestARunMayNameNoModelWhereItsStepsDo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(fleettest.Step("react", `{"model": "mockllm/own"}`))
	spec.Model = nil
	_, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
}

// What a call would be made with is what it is checked with.
func TestACallIsCheckedWithTheOptionsThatItIsMadeWith(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(
		fleettest.Step("multiple_choice", `{"max_tokens": 7}`), fleettest.Step("generate", ""), fleettest.Step("react", `{"model": "mockllm/own", "submit": false}`),
		fleettest.Step("react", `{"model": "judge", "submit": false}`), fleettest.Step("generate", `{"config": {"temperature": 0.1}}`),
	)
	spec.Choices = []string{"a", "b"}
	spec.Config = &modelv1.GenerateConfig{Temperature: new(0.3), MaxRetries: new(int32(2))}
	spec.ModelRoles = map[string]*agentv1.ModelRef{"judge": {Model: "mockllm/judge", Config: &modelv1.GenerateConfig{TopP: new(0.5)}}}
	plan, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	var checked []string
	for _, r := range f.Models.Checks() {
		checked = append(checked, r.GetModel()+" "+string(chat.ConfigJSON(r.GetConfig())))
	}
	head, err := f.Runs.Start(t.Context(), plan, runs.Key{}, "user:ada")
	require.NoError(t, err)
	f.Finish(head.Name)
	made := map[string]bool{}
	for _, r := range f.Models.Requests() {
		call := r.GetModel() + " " + string(chat.ConfigJSON(r.GetConfig()))
		assert.Contains(t, checked, call)
		made[call] = true
	}
	assert.Len(t, made, 5)
	assert.Len(t, checked, len(made), "each once: %s", checked)
}

// A model gateway of another version may name options without a warning for each.
func TestAnUnsentOptionWithoutAWarningIsSaid(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(fleettest.Step("generate", ""))
	spec.Model.Model, spec.Config = "mockllm/terse", &modelv1.GenerateConfig{Temperature: new(0.3)}
	plan, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	require.Len(t, plan.Warnings, 1)
	assert.Equal(t, "temperature is not sent to mockllm/terse", plan.Warnings[0].GetMessage())
}

// An option that a model is sent with another value is said once, beside those that it is not sent.
func TestAnOptionThatIsSentByAnotherWordIsSaid(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(fleettest.Step("generate", ""), fleettest.Step("generate", ""))
	spec.Model.Model, spec.Config = "mockllm/cold", &modelv1.GenerateConfig{Temperature: new(0.3), ReasoningEffort: new("minimal")}
	plan, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	require.Len(t, plan.Warnings, 2)
	assert.Equal(t, "reasoning_effort minimal is sent to mockllm/cold as low", plan.Warnings[1].GetMessage())
	assert.Equal(t, "low", plan.Warnings[1].GetChangedOptions()[0].GetSent())
	assert.Empty(t, plan.Warnings[1].GetUnsentOptions())
	assert.Empty(t, plan.Warnings[0].GetChangedOptions())
}

// ofOptions leaves of warnings those about options of calls.
func ofOptions(warnings []*agentv1.EvalWarning) []*agentv1.EvalWarning {
	return slices.DeleteFunc(warnings, func(w *agentv1.EvalWarning) bool { return strings.HasPrefix(w.GetField(), "spec.model") })
}

// An option without effect is reported once per model, wherever the option was set.
func TestWhatAModelIsNotSentIsSaid(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(fleettest.Step("generate", `{"config": {"temperature": 0.7}}`), fleettest.Step("react", `{"model": "judge"}`), fleettest.Step("generate", ""))
	spec.Model.Model, spec.Config = "mockllm/cold", &modelv1.GenerateConfig{Temperature: new(0.3)}
	spec.ModelRoles = map[string]*agentv1.ModelRef{
		"grader": {Model: "mockllm/cold"}, // The run's options are not for it.
		"judge":  {Model: "mockllm/cold", Config: &modelv1.GenerateConfig{Temperature: new(0.1)}},
	}
	plan, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	warnings := ofOptions(plan.Warnings)
	require.Len(t, warnings, 1)
	assert.Equal(t, []string{"temperature"}, warnings[0].GetUnsentOptions())
	assert.Equal(t, "mockllm/cold", warnings[0].GetModel())
	assert.Empty(t, warnings[0].GetField())
	assert.Equal(t, "temperature is not sent to mockllm/cold", warnings[0].GetMessage())
	assert.Empty(t, f.Models.Requests(), "no model was called")

	spec.Config, spec.ModelRoles["judge"].Config = nil, nil
	plan, err = f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	warnings = ofOptions(plan.Warnings)
	require.Len(t, warnings, 1, "the step alone asks for it")
	assert.Equal(t, "spec.steps[0]", warnings[0].GetField())

	spec.Steps = spec.GetSteps()[1:]
	plan, err = f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	assert.Empty(t, ofOptions(plan.Warnings))
}

// Options of a run are for its model. A warning names the options that a call of another model lacks, and that model.
func TestWhatAModelIsNotGivenIsSaid(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const hint = ", the model that react names; config of a model role can set it"
	config := &modelv1.GenerateConfig{
		Temperature: new(0.3), TopK: new(int32(4)), AttemptTimeout: new(9.0), ExtraBodyJson: new(`{"own":1}`),
		Timeout: new(60.0), MaxRetries: new(int32(2)), MaxConnections: new(int32(3)), MaxToolOutput: new(int64(100)),
	}
	lost := []string{
		"attempt_timeout of config is not given to mockllm/own" + hint, "temperature of config is not given to mockllm/own" + hint,
		"top_k of config is not given to mockllm/own" + hint, "extra_body of config is not given to mockllm/own" + hint,
	}
	set := &modelv1.GenerateConfig{Temperature: new(0.3)}
	named, judged := fleettest.Step("react", `{"model": "mockllm/own"}`), fleettest.Step("react", `{"model": "judge"}`)
	for name, c := range map[string]struct {
		steps  []*agentv1.AgentRef
		config *modelv1.GenerateConfig
		says   []string
		field  string
		unsent bool
	}{
		"no call has them":              {[]*agentv1.AgentRef{named}, config, lost, "spec.config", true},
		"each once":                     {[]*agentv1.AgentRef{named, named}, config, lost, "spec.config", true},
		"another step has them":         {[]*agentv1.AgentRef{fleettest.Step("generate", ""), named}, config, lost, "spec.steps[1]", false},
		"a role sets its own":           {[]*agentv1.AgentRef{fleettest.Step("generate", ""), judged}, set, nil, "", false},
		"nothing is called but a role":  {[]*agentv1.AgentRef{judged}, set, []string{"temperature of config is not given to mockllm/judge: react calls it with another"}, "spec.config", true},
		"nothing but a step of its own": {[]*agentv1.AgentRef{fleettest.Step("generate", `{"config": {"temperature": 0.7}}`)}, set, []string{"temperature of config is not given to mockllm/cold: generate calls it with another", "temperature is not sent to mockllm/cold"}, "", false},
		"the run's model by its name":   {[]*agentv1.AgentRef{fleettest.Step("react", `{"model": "mockllm/cold"}`)}, set, []string{"temperature of config is not given to mockllm/cold" + hint}, "spec.config", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fleettest.Spec(c.steps...)
			// Options that are not sent to the run's model are not reported if nothing calls it.
			spec.Model.Model, spec.Config = "mockllm/cold", c.config
			spec.ModelRoles = map[string]*agentv1.ModelRef{
				"judge":  {Model: "mockllm/judge", Config: &modelv1.GenerateConfig{Temperature: new(0.1)}},
				"unused": {Model: "mockllm/cold", Config: &modelv1.GenerateConfig{Temperature: new(0.2)}},
			}
			plan, err := f.Runs.Check(t.Context(), "p", spec)
			require.NoError(t, err)
			var says []string
			for _, w := range ofOptions(plan.Warnings) {
				if w.GetMessage() == "temperature is not sent to mockllm/cold" && len(c.steps) > 1 {
					continue
				}
				says = append(says, w.GetMessage())
				if c.field != "" {
					assert.Equal(t, c.field, w.GetField())
					assert.Equal(t, c.unsent, len(w.GetUnsentOptions()) == 1)
				}
			}
			assert.ElementsMatch(t, c.says, says)
		})
	}
}

// A model or a role that no step calls is reported, and that its configuration and its arguments have no effect.
func TestAModelThatIsNeverCalledIsSaid(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	plain, own := fleettest.Step("generate", ""), fleettest.Step("react", `{"model": "mockllm/own"}`)
	judged, named := fleettest.Step("react", `{"model": "judge"}`), fleettest.Step("react", `{"model": "mockllm/model"}`)
	system := fleettest.Step("system_message", `{"template": "Be brief."}`)
	const args, asArgs = `{"outputs": ["x"]}`, "args are not used"
	set, asSet := &modelv1.GenerateConfig{Temperature: new(0.3), ExtraBodyJson: new(`{"own": 1}`)}, "config (temperature, extra_body) is not used"
	const both = "config (temperature, extra_body) and args are not used"
	fallback := &modelv1.GenerateConfig{FallbackModels: &modelv1.StringList{Values: []string{"model"}}}
	judge := map[string]*agentv1.ModelRef{"judge": {Model: "mockllm/judge"}}
	type steps = []*agentv1.AgentRef
	for name, c := range map[string]struct {
		steps  steps
		config *modelv1.GenerateConfig
		args   string
		roles  map[string]*agentv1.ModelRef
		says   []string
	}{
		"no step calls it": {steps: steps{system, own}, says: []string{"the model mockllm/model is never called: react names mockllm/own"}},
		"callers are said once": {steps: steps{own, own, judged}, roles: judge, says: []string{
			"the model mockllm/model is never called: react names mockllm/own, react names the role judge",
		}},
		"a configuration of its own": {steps: steps{own}, config: set, says: []string{
			"the model mockllm/model is never called, and its " + asSet + ": react names mockllm/own",
		}},
		"a bound of what tools say": {steps: steps{own}, config: &modelv1.GenerateConfig{MaxToolOutput: new(int64(100))}, says: []string{
			"the model mockllm/model is never called: react names mockllm/own", // That bound holds all the same.
		}},
		"arguments of its own": {steps: steps{own}, args: args, says: []string{
			"the model mockllm/model is never called, and its " + asArgs + ": react names mockllm/own",
		}},
		"both of its own": {steps: steps{own}, config: set, args: args, says: []string{
			"the model mockllm/model is never called, and its " + both + ": react names mockllm/own",
		}},
		"called by its name": {steps: steps{named}, config: set, args: args, says: []string{
			"mockllm/model's own " + asSet + ": react names mockllm/model",
		}},
		"called as a role": {steps: steps{judged}, config: set, args: args, roles: map[string]*agentv1.ModelRef{"judge": {Model: "mockllm/model"}}, says: []string{
			"mockllm/model's own " + both + ": react names the role judge",
		}},
		"called after another": {steps: steps{judged}, config: set, roles: map[string]*agentv1.ModelRef{"judge": {Model: "mockllm/judge", Config: fallback}}, says: []string{
			"mockllm/model's own " + asSet + ": react names the role judge",
		}},
		"called by its name, with all it has": {steps: steps{named}, args: args},
		"called as a role, with all it has":   {steps: steps{judged}, roles: map[string]*agentv1.ModelRef{"judge": {Model: "mockllm/model"}}},
		"called by another step":              {steps: steps{own, plain}, config: set, args: args},
		"called with options of the step":     {steps: steps{own, fleettest.Step("generate", `{"config": {"temperature": 0.7}}`)}, config: set},
		"no step calls any":                   {steps: steps{system}, config: set, roles: judge},
		"a step that does not tell":           {steps: steps{own, fleettest.Step("closed", "")}, config: set, roles: judge},
		"a role that a step names":            {steps: steps{plain, judged}, roles: judge},
		"roles that no step names": {
			steps: steps{plain, judged},
			roles: map[string]*agentv1.ModelRef{
				"expert": {Model: "mockllm/judge", Config: set, ModelArgsJson: args}, "grader": {Model: "mockllm/grader"}, "judge": {Model: "mockllm/judge"},
			},
			says: []string{
				"the role expert (mockllm/judge) is never called, and its " + both + ": no solver names it",
				"the role grader (mockllm/grader) is never called: no solver names it",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fleettest.Spec(c.steps...)
			spec.Model.Config, spec.Model.ModelArgsJson, spec.ModelRoles = c.config, c.args, c.roles
			plan, err := f.Runs.Check(t.Context(), "p", spec)
			require.NoError(t, err)
			var says []string
			for _, w := range plan.Warnings {
				says = append(says, w.GetMessage())
				ref, field := spec.GetModel(), "spec.model"
				for _, role := range []string{"expert", "grader"} {
					if strings.HasPrefix(w.GetMessage(), "the role "+role) {
						ref, field = c.roles[role], `spec.model_roles["`+role+`"]`
					}
				}
				assert.Equal(t, field, w.GetField())
				assert.Equal(t, ref.GetModel(), w.GetModel())
				var unsent []string
				if ref.GetConfig() == set {
					unsent = []string{"temperature", "extra_body_json"}
				}
				assert.Equal(t, unsent, w.GetUnsentOptions())
			}
			assert.Equal(t, c.says, says)

			spec.Attribution = &effectv1.Attribution{Eval: "projects/p/evals/e", Sample: "s"}
			plan, err = f.Runs.Check(t.Context(), "p", spec)
			require.NoError(t, err)
			assert.Empty(t, plan.Warnings, "its evaluation was warned")
		})
	}
}

// A worker knows the run that asks it, and so can call the models that the run names.
func TestAModelThatAWorkerMayCallIsNotSaidToBeUncalled(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for name, c := range map[string]struct {
		params string
		change func(*agentv1.RunSpec)
		says   int
	}{
		"no worker": {`{"model": "mockllm/own"}`, func(*agentv1.RunSpec) {}, 2},
		"a scorer": {`{"model": "mockllm/own"}`, func(s *agentv1.RunSpec) {
			s.Scorers = []*agentv1.ScorerRef{{Name: "graded", Worker: &agentv1.WorkerRef{Kind: "scorer", Name: "graded"}}}
		}, 0},
		"what an agent asks": {`{"model": "mockllm/own", "on_continue": {"worker": "guide"}}`, func(s *agentv1.RunSpec) {
			s.Steps[0].Workers = []*agentv1.WorkerRef{{Kind: "continue", Name: "guide"}}
		}, 0},
		"a tool": {`{"model": "mockllm/own"}`, func(s *agentv1.RunSpec) {
			s.Tools = []*toolv1.ToolRef{{Name: "expert", Definition: &toolv1.ToolDefinition{Info: &toolv1.ToolInfo{Name: "expert"}, Worker: "expert"}}}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fleettest.Spec(fleettest.Step("react", c.params))
			spec.ModelRoles = map[string]*agentv1.ModelRef{"grader": {Model: "mockllm/grader"}}
			c.change(spec)
			plan, err := f.Runs.Check(t.Context(), "p", spec)
			require.NoError(t, err)
			assert.Len(t, plan.Warnings, c.says, "%v", plan.Warnings)
		})
	}
}

func TestACommandWithTheAnswerInItIsWarnedOf(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(fleettest.Step("generate", ""))
	spec.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	spec.Scorers = []*agentv1.ScorerRef{{Name: "includes"}, {Name: "exec", ParamsJson: `{"command": "test '{completion}' = 42"}`}}
	spec.Target = &agentv1.Target{Values: []string{"42"}}
	plan, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	require.Len(t, plan.Warnings, 1)
	assert.Equal(t, "spec.scorers[1]", plan.Warnings[0].GetField())
	assert.Contains(t, plan.Warnings[0].GetMessage(), "EVALFLEET_COMPLETION")
}

// A placeholder that no value has is warned of before the run: the model would read it. Runs of samples are not warned.
func TestAMisspelledPlaceholderIsWarnedOf(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	spec := fleettest.Spec(
		fleettest.Step("system_message", `{"template": "{manner} {lang} {kept} {metadata.lang} {{x}}", "params": {"manner": "kind"}}`),
		fleettest.Step("prompt_template", `{"template": "{promt} in {lnag}"}`),
		fleettest.Step("multiple_choice", `{"template": "{question} {choices} {leters}"}`),
	)
	spec.MetadataJson, spec.Store = `{"lang": "go"}`, map[string]string{"kept": `1`}
	spec.Choices = []string{"a", "b"}
	plan, err := f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	require.Len(t, plan.Warnings, 2)
	assert.Equal(t, "spec.steps[1]", plan.Warnings[0].GetField())
	assert.Equal(t, "the template of prompt_template has no value for {promt}, {lnag}, which stays in the text if nothing sets it before; "+
		"did you mean prompt? known: prompt, kept, lang", plan.Warnings[0].GetMessage())
	assert.Equal(t, "spec.steps[2]", plan.Warnings[1].GetField())
	assert.Contains(t, plan.Warnings[1].GetMessage(), "{leters}")
	assert.Contains(t, plan.Warnings[1].GetMessage(), "did you mean letters? known: question, choices, letters")
	spec.Attribution = &effectv1.Attribution{Eval: "projects/p/evals/e"}
	plan, err = f.Runs.Check(t.Context(), "p", spec)
	require.NoError(t, err)
	assert.Empty(t, plan.Warnings)
}

func TestNamesMeanOneToolThroughout(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, err := f.Runs.Check(t.Context(), "p", fleettest.Spec(
		fleettest.Step("react", ""), fleettest.Step("react", `{"submit": {"description": "Another one."}}`),
	))
	require.ErrorContains(t, err, "spec.steps[1].tools")
	require.ErrorContains(t, err, "submit")
}
