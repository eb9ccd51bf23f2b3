package server_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/bash"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built != "" {
			_ = os.RemoveAll(built)
		}
		os.Exit(code)
	}))
}

func TestListToolsGoesPageByPage(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	whole, err := s.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: parent})
	require.NoError(t, err)
	assert.Empty(t, whole.GetNextPageToken())

	var paged []*toolv1.ToolDefinition
	request := &toolv1.ListToolsRequest{Parent: parent, PageSize: 3}
	for {
		page, err := s.ListTools(t.Context(), request)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.GetTools()), 3)
		paged = append(paged, page.GetTools()...)
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			break
		}
	}
	require.Len(t, paged, len(whole.GetTools()))
	for i := range paged {
		assert.Same(t, whole.GetTools()[i], paged[i])
	}

	_, err = s.ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: parent, PageToken: "made up"})
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR, rpcerr.Reason(err))
}

func TestResolveTools(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	response, err := s.ResolveTools(t.Context(), &toolv1.ResolveToolsRequest{Parent: parent, Tools: []*toolv1.ToolRef{{Name: "note"}, {Name: "add", Rename: "plus"}}})
	require.NoError(t, err)
	require.Len(t, response.GetTools(), 2)
	assert.Equal(t, "note", response.GetTools()[0].GetInfo().GetName())
	assert.Equal(t, "plus", response.GetTools()[1].GetInfo().GetName())

	_, err = s.ResolveTools(t.Context(), &toolv1.ResolveToolsRequest{Parent: parent, Tools: []*toolv1.ToolRef{{Name: "nott"}}})
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND, rpcerr.Reason(err))
}

// submit is a tool that the caller itself runs.
var submit = &toolv1.ToolRef{Name: "submit", Definition: &toolv1.ToolDefinition{
	CallerRuns: true,
	Info: &toolv1.ToolInfo{
		Name: "submit", Description: "Submits.",
		ParametersJson: `{"type":"object","properties":{"answer":{"type":"string","description":"The answer."}},"required":["answer"],"additionalProperties":false}`,
	},
}}

func TestReviewDecides(t *testing.T) {
	t.Parallel()
	s := newService(t, nil, bash.Kind())
	request := &toolv1.ReviewToolsRequest{
		Parent: parent,
		Tools:  []*toolv1.ToolRef{{Name: "bash"}, {Name: "add"}, {Name: "note"}, submit},
		Calls: []*toolv1.ToolCall{
			{Id: "c1", Function: "bash", ArgumentsJson: `{"command":" ls\n"}`},
			{Id: "c2", Function: "add", ArgumentsJson: `{"x":1.0,"y":2}`},
			{Id: "c3", Function: "note", ArgumentsJson: `{"text":5}`},
			{Id: "c4", Function: "none", ArgumentsJson: `{}`},
			{Id: "c5", Function: "note", ParseError: new("broken")},
			{Id: "c6", Function: "submit", ArgumentsJson: `{"answer":"42"}`},
			{Id: "c7", Function: "submit", ArgumentsJson: `{}`},
			{Id: "c8", Function: "bash", ArgumentsJson: `{"command":"rm x"}`, View: &toolv1.ToolCallContent{Content: "the provider asks for a confirmation"}},
			{Id: "c9", Function: "add", ArgumentsJson: `{"x":1.0,"y":2}`, View: &toolv1.ToolCallContent{Content: "the provider asks for a confirmation"}},
		},
	}
	before := proto.CloneOf(request)
	response, err := s.ReviewTools(t.Context(), request)
	require.NoError(t, err)
	assert.True(t, proto.Equal(before, request), "a review changes nothing")

	decisions := map[string]toolv1.ReviewDecision{}
	for i, review := range response.GetReviews() {
		assert.Equal(t, request.GetCalls()[i].GetId(), review.GetCallId())
		decisions[review.GetCallId()] = review.GetDecision()
		assert.Equal(t, review.GetDecision() == toolv1.ReviewDecision_REVIEW_DECISION_REJECT, review.GetError() != nil)
	}
	assert.Equal(t, map[string]toolv1.ReviewDecision{
		"c1": toolv1.ReviewDecision_REVIEW_DECISION_RUN,
		"c2": toolv1.ReviewDecision_REVIEW_DECISION_RUN,
		"c3": toolv1.ReviewDecision_REVIEW_DECISION_REJECT,
		"c4": toolv1.ReviewDecision_REVIEW_DECISION_REJECT,
		"c5": toolv1.ReviewDecision_REVIEW_DECISION_REJECT,
		"c6": toolv1.ReviewDecision_REVIEW_DECISION_CALLER,
		"c7": toolv1.ReviewDecision_REVIEW_DECISION_REJECT,
		"c8": toolv1.ReviewDecision_REVIEW_DECISION_RUN,
		"c9": toolv1.ReviewDecision_REVIEW_DECISION_RUN,
	}, decisions)
	for i, own := range map[int]bool{7: true, 8: false} {
		assert.Equal(t, "the provider asks for a confirmation", response.GetReviews()[i].GetView().GetContext().GetContent(), "what a provider says of a call stays in sight")
		assert.Equal(t, own, response.GetReviews()[i].GetView().GetCall() != nil)
	}
	again, err := s.ReviewTools(t.Context(), &toolv1.ReviewToolsRequest{Parent: parent, Tools: request.GetTools(), Calls: []*toolv1.ToolCall{response.GetReviews()[0].GetCall()}})
	require.NoError(t, err)
	assert.Nil(t, again.GetReviews()[0].GetView().GetContext(), "the tool's own view is not what surrounds it")

	shell, sum := response.GetReviews()[0], response.GetReviews()[1]
	assert.Equal(t, "```bash\nls\n```\n", shell.GetView().GetCall().GetContent())
	assert.Equal(t, "```bash\nls\n```\n", shell.GetCall().GetView().GetContent())
	assert.Nil(t, sum.GetView())
	assert.JSONEq(t, `{"x":1,"y":2}`, sum.GetCall().GetArgumentsJson())
	assert.True(t, sum.GetParallel())
	assert.False(t, response.GetReviews()[2].GetParallel())
	assert.Equal(t, "broken", response.GetReviews()[4].GetError().GetMessage())
	assert.Contains(t, response.GetReviews()[3].GetError().GetMessage(), "none")
}

func TestApprovalPoliciesAreNotBuiltYet(t *testing.T) {
	t.Parallel()
	_, err := newService(t, nil).ReviewTools(t.Context(), &toolv1.ReviewToolsRequest{Parent: parent, Policies: []*toolv1.ApprovalPolicy{{Approver: "auto", Tools: []string{"*"}}}})
	assert.Equal(t, codes.Unimplemented, rpcerr.Code(err))
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET, rpcerr.Reason(err))
}

func TestParsedCallsHaveIDs(t *testing.T) {
	t.Parallel()
	s := newService(t, nil, bash.Kind())
	ids := map[string]bool{}
	for range 3 {
		response, err := s.ParseToolCall(t.Context(), &toolv1.ParseToolCallRequest{Parent: parent, Tools: []*toolv1.ToolRef{{Name: "bash"}}, Function: "bash", Raw: "ls -la"})
		require.NoError(t, err)
		call := response.GetCall()
		assert.JSONEq(t, `{"command":"ls -la"}`, call.GetArgumentsJson())
		assert.Equal(t, "```bash\nls -la\n```\n", call.GetView().GetContent())
		assert.Regexp(t, `^bash_\w+$`, call.GetId())
		ids[call.GetId()] = true
	}
	assert.Len(t, ids, 3)

	response, err := s.ParseToolCall(t.Context(), &toolv1.ParseToolCallRequest{Parent: parent, Function: "bash", Raw: "{", CallId: "given"})
	require.NoError(t, err)
	assert.Equal(t, "given", response.GetCall().GetId())
	assert.NotEmpty(t, response.GetCall().GetParseError())
	assert.JSONEq(t, "{}", response.GetCall().GetArgumentsJson())
}

func TestExecuteRefusesWhatItCannotRun(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	call := []*toolv1.ToolCall{{Id: "c1", Function: "note", ArgumentsJson: `{"text":"a"}`}}
	note := []*toolv1.ToolRef{{Name: "note"}}
	for name, c := range map[string]struct {
		request *toolv1.ExecuteToolsRequest
		says    string
	}{
		"no project":             {&toolv1.ExecuteToolsRequest{Parent: "default", Tools: note, Calls: call}, "parent"},
		"an unknown tool":        {&toolv1.ExecuteToolsRequest{Parent: parent, Tools: []*toolv1.ToolRef{{Name: "nott"}}, Calls: call}, "nott"},
		"no sandbox's name":      {&toolv1.ExecuteToolsRequest{Parent: parent, Tools: note, Calls: call, Sandboxes: map[string]string{"default": "s1"}}, `sandboxes["default"]`},
		"another's sandbox":      {&toolv1.ExecuteToolsRequest{Parent: parent, Tools: note, Calls: call, Sandboxes: map[string]string{"db": "projects/other/sandboxes/s1"}}, `sandboxes["db"]`},
		"a scope":                {&toolv1.ExecuteToolsRequest{Parent: parent, Tools: note, Calls: call, Scope: "s"}, "tool scopes"},
		"an MCP server's tool":   {&toolv1.ExecuteToolsRequest{Parent: parent, Tools: []*toolv1.ToolRef{{Name: "*", McpServer: parent + "/mcpServers/m"}}, Calls: call}, "MCP servers"},
		"a tool of the caller's": {&toolv1.ExecuteToolsRequest{Parent: parent, Tools: []*toolv1.ToolRef{submit}, Calls: []*toolv1.ToolCall{{Id: "c1", Function: "submit"}}}, "submit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := s.execute(t.Context(), c.request)
			require.ErrorContains(t, err, c.says)
			assert.Empty(t, out.events)
		})
	}
}

func TestKeysOfCalls(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	out, err := s.execute(t.Context(), &toolv1.ExecuteToolsRequest{
		Parent: parent, RequestId: "run/3", Tools: []*toolv1.ToolRef{{Name: "note"}},
		Calls: []*toolv1.ToolCall{{Id: "c1", Function: "note", ArgumentsJson: `{"text":"a"}`}},
	})
	require.NoError(t, err)
	require.Len(t, out.events, 2)
	assert.Equal(t, "c1", out.events[0].GetStarted().GetCallId())

	kept, err := s.AttachToolCall(t.Context(), &toolv1.AttachToolCallRequest{Parent: parent, RequestId: "run/3", CallId: "c1"})
	require.NoError(t, err)
	assert.True(t, proto.Equal(out.results()[0], kept))

	cancelled, err := s.CancelTools(t.Context(), &toolv1.CancelToolsRequest{Parent: parent, RequestId: "run/3", Calls: []*toolv1.CallRef{{CallId: "c1"}, {CallId: "c2", Index: 1}}})
	require.NoError(t, err)
	require.Len(t, cancelled.GetAlreadyDone(), 1)
	assert.Equal(t, "c1", cancelled.GetAlreadyDone()[0].GetCallId())
	_, err = s.AttachToolCall(t.Context(), &toolv1.AttachToolCallRequest{Parent: parent, RequestId: "run/3", CallId: "c2", Index: 1})
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED, rpcerr.Reason(err))

	_, err = s.ReleaseTools(t.Context(), &toolv1.ReleaseToolsRequest{Parent: parent, RequestId: "run/3", Calls: []*toolv1.CallRef{{CallId: "c1"}}})
	require.NoError(t, err)
	_, err = s.AttachToolCall(t.Context(), &toolv1.AttachToolCallRequest{Parent: parent, RequestId: "run/3", CallId: "c1"})
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, rpcerr.Reason(err))
}

func TestResultsOfARunAreReleasedTogether(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, key := range []string{"r/3", "r2/3"} {
		_, err := s.execute(t.Context(), &toolv1.ExecuteToolsRequest{
			Parent: parent, RequestId: key, Tools: []*toolv1.ToolRef{{Name: "note"}},
			Calls: []*toolv1.ToolCall{{Id: strings.Repeat("long", 50), Function: "note", ArgumentsJson: `{"text":"a"}`}},
		})
		require.NoError(t, err)
	}
	_, err := s.ReleaseRunTools(t.Context(), &toolv1.ReleaseRunToolsRequest{Parent: parent, Runs: []string{parent + "/runs/r"}})
	require.NoError(t, err)
	_, err = s.AttachToolCall(t.Context(), &toolv1.AttachToolCallRequest{Parent: parent, RequestId: "r/3", CallId: strings.Repeat("long", 50)})
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, rpcerr.Reason(err))
	_, err = s.AttachToolCall(t.Context(), &toolv1.AttachToolCallRequest{Parent: parent, RequestId: "r2/3", CallId: strings.Repeat("long", 50)})
	assert.NoError(t, err)
}
