package server_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

func TestARunIsTheFoldOfItsJournal(t *testing.T) {
	t.Parallel()
	r := serve(t)
	spec := answering()
	spec.Scorers, spec.Target = []*agentv1.ScorerRef{{Name: "includes"}}, &agentv1.Target{Values: []string{"answer"}}
	spec.Labels = map[string]string{"team": "blue"}
	name := r.finished(spec)

	basic, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, basic.GetState())
	assert.Equal(t, int32(2), basic.GetMessageCount())
	assert.Equal(t, int64(15), basic.GetUsage()["mockllm/model"].GetTotalTokens())
	assert.Equal(t, "C", basic.GetScores()[0].GetScore().GetValue().GetText())
	assert.Equal(t, map[string]string{"team": "blue"}, basic.GetSpec().GetLabels())
	assert.NotEmpty(t, basic.GetEtag())
	text, err := protojson.Marshal(basic)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "question", "a view without content")
	assert.NotContains(t, string(text), "answer")

	full, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name, View: agentv1.RunView_RUN_VIEW_FULL})
	require.NoError(t, err)
	assert.Equal(t, []string{"U:the question", "A:the answer"}, fleettest.Texts(full.GetMessages()))
	assert.Equal(t, "the answer", chat.Completion(full.GetOutput()))
	assert.Equal(t, []string{"answer"}, full.GetSpec().GetTarget().GetValues())
	assert.Empty(t, full.GetSpec().GetPrompt(), "a prompt is an input of one message")

	_, err = r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: project + "/runs/none"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)
	_, err = r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: "nonsense"})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
}

// The response names the run's options that are not sent to the model, and the journal keeps the warnings.
func TestARunSaysWhatIsNotDoneAsAsked(t *testing.T) {
	t.Parallel()
	r := serve(t)
	spec := answering()
	spec.Model.Model, spec.Config = "mockllm/cold", &modelv1.GenerateConfig{Temperature: new(0.3)}
	made, err := r.runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: spec})
	require.NoError(t, err)
	require.Len(t, made.GetWarnings(), 1)
	assert.Equal(t, "temperature is not sent to mockllm/cold", made.GetWarnings()[0].GetMessage())
	r.Finish(made.GetName())
	got, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: made.GetName()})
	require.NoError(t, err)
	assert.Equal(t, []string{"temperature"}, got.GetWarnings()[0].GetUnsentOptions())
}

func TestTheLogSaysWhyARunWasRefused(t *testing.T) {
	t.Parallel()
	r := serve(t)
	var b bytes.Buffer
	runs := r.over(r.Store, &b)
	spec := answering()
	spec.Model.Model = "openai/gpt-4o"
	_, err := runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: spec})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED), "%v", err)
	assert.Contains(t, b.String(), `level=WARN msg="a run is refused" parent=projects/default reason=PROVIDER_NOT_CONFIGURED field=spec.model.model provider=openai account=default`)
	assert.NotContains(t, b.String(), "the question")
}

func TestARequestMakesOneRun(t *testing.T) {
	t.Parallel()
	r := serve(t)
	request := &agentv1.CreateRunRequest{Parent: project, RequestId: "once", Spec: answering()}
	first, err := r.runs.CreateRun(t.Context(), request)
	require.NoError(t, err)
	again, err := r.runs.CreateRun(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, first.GetName(), again.GetName())

	request.Spec.Prompt = "another question"
	_, err = r.runs.CreateRun(t.Context(), request)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)
	request.Parent = "projects/other"
	other, err := r.runs.CreateRun(t.Context(), request)
	require.NoError(t, err, "request ids belong to a project")
	assert.NotEqual(t, first.GetName(), other.GetName())
}

// A later version may put the request for an eval's slot otherwise than the version that made its run.
func TestASlotOfAnEvalHasOneRunHoweverItIsAskedFor(t *testing.T) {
	t.Parallel()
	r := serve(t)
	slot := answering()
	slot.Attribution = &effectv1.Attribution{Eval: project + "/evals/e"}
	first, err := r.Runs.CreateSample(t.Context(), "default", slot, "e/1/1", journal.Head{})
	require.NoError(t, err)
	slot.Prompt = "the question in other words"
	again, err := r.Runs.CreateSample(t.Context(), "default", slot, "e/1/1", journal.Head{})
	require.NoError(t, err)
	assert.Equal(t, first, again)
}

func TestOnlyThePlatformSaysOnWhoseBehalfARunIs(t *testing.T) {
	t.Parallel()
	r := serve(t)
	spec := answering()
	spec.Attribution = &effectv1.Attribution{Eval: project + "/evals/e", Sample: "s"}
	name := r.finished(spec)
	got, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name, View: agentv1.RunView_RUN_VIEW_FULL})
	require.NoError(t, err)
	assert.Nil(t, got.GetSpec().GetAttribution(), "a caller from outside")

	inner, err := r.Runs.CreateSample(t.Context(), "default", spec, "e/1/1", journal.Head{})
	require.NoError(t, err)
	got, err = r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: inner, View: agentv1.RunView_RUN_VIEW_FULL})
	require.NoError(t, err)
	assert.Equal(t, "s", got.GetSpec().GetAttribution().GetSample(), "an eval")
	of, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project, Eval: project + "/evals/e"})
	require.NoError(t, err)
	require.Len(t, of.GetRuns(), 1)
	assert.Equal(t, inner, of.GetRuns()[0].GetName())
}

func TestWhatIsWrongWithASpecificationIsNamed(t *testing.T) {
	t.Parallel()
	r := serve(t)
	for name, c := range map[string]struct {
		change func(*agentv1.RunSpec)
		code   codes.Code
		says   []string
	}{
		"no steps":          {func(s *agentv1.RunSpec) { s.Steps = nil }, codes.InvalidArgument, []string{"spec.steps"}},
		"unknown agent":     {func(s *agentv1.RunSpec) { s.Steps[0].Name = "reakt" }, codes.InvalidArgument, []string{"spec.steps[0].name", "reakt", "generate, react"}},
		"unknown parameter": {func(s *agentv1.RunSpec) { s.Steps[0].ParamsJson = `{"tol_calls": "loop"}` }, codes.InvalidArgument, []string{"spec.steps[0]", "tol_calls", "tool_calls"}},
		"bad parameter":     {func(s *agentv1.RunSpec) { s.Steps[0].ParamsJson = `{"tool_calls": "twice"}` }, codes.InvalidArgument, []string{"spec.steps[0].params_json/tool_calls", "loop"}},
		"parameters that are no JSON": {
			func(s *agentv1.RunSpec) { s.Steps[0].ParamsJson = `{` }, codes.InvalidArgument, []string{"spec.steps[0]", "JSON"},
		},
		"unknown tool":    {func(s *agentv1.RunSpec) { s.Tools = []*toolv1.ToolRef{{Name: "bsh"}} }, codes.InvalidArgument, []string{"spec.tools[0].name", "bsh"}},
		"unknown scorer":  {func(s *agentv1.RunSpec) { s.Scorers = []*agentv1.ScorerRef{{Name: "exakt"}} }, codes.InvalidArgument, []string{"spec.scorers[0].name", "exakt", "exact"}},
		"no model name":   {func(s *agentv1.RunSpec) { s.Model.Model = "gpt" }, codes.InvalidArgument, []string{"spec.model", "provider/name"}},
		"unknown model":   {func(s *agentv1.RunSpec) { s.Model.Model = "opnai/gpt" }, codes.InvalidArgument, []string{"spec.model.model", "opnai", "openai"}},
		"unusable model":  {func(s *agentv1.RunSpec) { s.Model.Model = "openai/gpt" }, codes.FailedPrecondition, []string{"spec.model", "OPENAI_API_KEY"}},
		"unknown account": {func(s *agentv1.RunSpec) { s.Model.Account = "second" }, codes.InvalidArgument, []string{"spec.model.account", "second", "default"}},
		"unknown role's model": {
			func(s *agentv1.RunSpec) {
				s.ModelRoles = map[string]*agentv1.ModelRef{"grader": {Model: "no/such"}}
			}, codes.InvalidArgument, []string{`spec.model_roles["grader"].model`},
		},
		"unknown driver":       {sandbox(&sandboxv1.SandboxSpec{Driver: "docer"}), codes.InvalidArgument, []string{`spec.sandboxes["default"].driver`, "docer", "docker"}},
		"image without images": {sandbox(&sandboxv1.SandboxSpec{Image: "debian"}), codes.FailedPrecondition, []string{`spec.sandboxes["default"].image`}},
		"driver that cannot":   {sandbox(&sandboxv1.SandboxSpec{Driver: "docker"}), codes.Unavailable, []string{`spec.sandboxes["default"]`, "start dockerd"}},
		"negative bound":       {func(s *agentv1.RunSpec) { s.Limits = &agentv1.RunLimits{Tokens: new(int64(-1))} }, codes.InvalidArgument, []string{"spec.limits", "tokens"}},
		"bad formula":          {func(s *agentv1.RunSpec) { s.Limits = &agentv1.RunLimits{TokenFormula: "inputs"} }, codes.InvalidArgument, []string{"spec.limits", "formula"}},
		"bad metadata":         {func(s *agentv1.RunSpec) { s.MetadataJson = "[]" }, codes.InvalidArgument, []string{"spec.metadata_json"}},
		"bad store":            {func(s *agentv1.RunSpec) { s.Store = map[string]string{"a": "{"} }, codes.InvalidArgument, []string{`spec.store["a"]`}},
		"prompt and input": {
			func(s *agentv1.RunSpec) { s.Input = []*modelv1.ChatMessage{fleettest.User("too")} }, codes.InvalidArgument, []string{"spec.prompt"},
		},
		"message without a role": {
			func(s *agentv1.RunSpec) { s.Prompt, s.Input = "", []*modelv1.ChatMessage{{}} }, codes.InvalidArgument, []string{"spec.input[0].role"},
		},
		"a person who approves": {
			func(s *agentv1.RunSpec) {
				s.Approval = []*toolv1.ApprovalPolicy{{Approver: "human", Tools: []string{"*"}}}
			}, codes.Unimplemented, []string{"spec.approval[0]"},
		},
		"a schema that is no JSON": {
			func(s *agentv1.RunSpec) {
				s.Config = &modelv1.GenerateConfig{ResponseSchema: &modelv1.ResponseSchema{Name: "a", JsonSchema: "{"}}
			}, codes.InvalidArgument, []string{"spec.config.response_schema.json_schema"},
		},
		"metadata of a message that is no JSON": {
			func(s *agentv1.RunSpec) {
				s.Prompt, s.Input = "", []*modelv1.ChatMessage{{Role: modelv1.Role_ROLE_USER, MetadataJson: "no"}}
			}, codes.InvalidArgument, []string{"spec.input[0].metadata_json"},
		},
		"records nobody knows": {func(s *agentv1.RunSpec) { s.RecordCalls = 99 }, codes.InvalidArgument, []string{"spec.record_calls"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := answering()
			c.change(spec)
			_, err := r.runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: spec})
			require.Error(t, err)
			assert.Equal(t, c.code, rpcerr.Code(err), "%v", err)
			for _, part := range c.says {
				assert.ErrorContains(t, err, part)
			}
			if c.code != codes.Unavailable { // The fault is the server's.
				fault, _ := rpcerr.As(err)
				require.NotEmpty(t, fault.Fields, "%v", err)
				assert.True(t, strings.HasPrefix(fault.Fields[0].Path, c.says[0]), "%s: %v", fault.Fields[0].Path, err)
			}
		})
	}
	for name, request := range map[string]*agentv1.CreateRunRequest{
		"no project": {Spec: answering()}, "no specification": {Parent: project}, "a parent that is none": {Parent: "default", Spec: answering()},
	} {
		_, err := r.runs.CreateRun(t.Context(), request)
		assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), name)
	}
}

func sandbox(box *sandboxv1.SandboxSpec) func(*agentv1.RunSpec) {
	return func(s *agentv1.RunSpec) { s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": box} }
}

func TestListsPageThroughRunsNewestFirst(t *testing.T) {
	t.Parallel()
	r := serve(t)
	var names []string
	for i := range 5 {
		spec := answering()
		spec.Labels = map[string]string{"odd": map[bool]string{true: "yes", false: "no"}[i%2 == 1], "all": "1"}
		names = append([]string{r.finished(spec)}, names...)
	}
	request := &agentv1.ListRunsRequest{Parent: project, PageSize: 2}
	var got []string
	for pages := 1; ; pages++ {
		page, err := r.runs.ListRuns(t.Context(), request)
		require.NoError(t, err)
		for _, one := range page.GetRuns() {
			got = append(got, one.GetName())
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, one.GetState(), "the row of a run that has ended is its last")
			assert.NotEmpty(t, one.GetEtag())
			assert.Empty(t, one.GetMessages())
		}
		if page.GetNextPageToken() == "" {
			assert.Equal(t, 3, pages)
			break
		}
		request.PageToken = page.GetNextPageToken()
	}
	assert.Equal(t, names, got)

	_, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project, Labels: map[string]string{"all": "1"}, PageToken: request.GetPageToken()})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "a token belongs to its request")
	odd, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project, Labels: map[string]string{"odd": "yes", "all": "1"}})
	require.NoError(t, err)
	assert.Len(t, odd.GetRuns(), 2)
	failed, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project, States: []agentv1.RunState{agentv1.RunState_RUN_STATE_FAILED}})
	require.NoError(t, err)
	assert.Empty(t, failed.GetRuns())
	others, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: "projects/other"})
	require.NoError(t, err)
	assert.Empty(t, others.GetRuns())
}

func TestAgentsAreListedWithTheirSchemas(t *testing.T) {
	t.Parallel()
	r := serve(t)
	first, err := r.runs.ListAgents(t.Context(), &agentv1.ListAgentsRequest{Parent: project, PageSize: 1})
	require.NoError(t, err)
	require.Len(t, first.GetAgents(), 1)
	assert.Equal(t, project+"/agents/generate", first.GetAgents()[0].GetName())
	assert.Contains(t, first.GetAgents()[0].GetParametersJson(), "tool_calls")
	second, err := r.runs.ListAgents(t.Context(), &agentv1.ListAgentsRequest{Parent: project, PageSize: 1, PageToken: first.GetNextPageToken()})
	require.NoError(t, err)
	assert.Equal(t, "react", second.GetAgents()[0].GetDisplayName())
	assert.Empty(t, second.GetNextPageToken())
}

func TestOnlyRunsThatHaveEndedAreDeleted(t *testing.T) {
	t.Parallel()
	r := serve(t)
	done := r.finished(answering())
	asked := r.hang()
	working := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	_, err := r.runs.DeleteRun(t.Context(), &agentv1.DeleteRunRequest{Name: working})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_IN_USE), "%v", err)
	_, err = r.runs.DeleteRun(t.Context(), &agentv1.DeleteRunRequest{Name: done})
	require.NoError(t, err)
	for _, gone := range []func() error{
		func() error {
			_, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: done})
			return err
		},
		func() error {
			_, err := r.runs.DeleteRun(t.Context(), &agentv1.DeleteRunRequest{Name: done})
			return err
		},
		func() error {
			_, err := r.watch(&agentv1.WatchRunRequest{Name: done})
			return err
		},
	} {
		assert.True(t, rpcerr.Is(gone(), errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND))
	}
	_, err = r.runs.DeleteRun(t.Context(), &agentv1.DeleteRunRequest{Name: "runs/x"})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
	_, err = r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: working})
	require.NoError(t, err)
}
