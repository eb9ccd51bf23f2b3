package server

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/argument"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/execute"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// ParseToolCall parses raw argument text into a call. Bare text is bound to the tool's first parameter, so the tool has
// to be on offer.
func (t *Tools) ParseToolCall(_ context.Context, request *toolv1.ParseToolCallRequest) (*toolv1.ParseToolCallResponse, error) {
	offers, err := t.offers(request.GetParent(), request.GetTools())
	if err != nil {
		return nil, err
	}
	call := &toolv1.ToolCall{
		Id:            request.GetCallId(),
		Function:      request.GetFunction(),
		ArgumentsJson: "{}",
		Type:          toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION,
	}
	if call.GetId() == "" {
		call.Id = request.GetFunction() + "_" + resource.NewID()
	}
	offer := offers.Find(request.GetFunction())
	first := ""
	if offer != nil {
		first = offer.FirstParameter()
	}
	arguments, err := argument.Parse(request.GetRaw(), first)
	if err != nil {
		call.ParseError = new(err.Error())
	} else {
		call.ArgumentsJson = string(arguments)
		call.View = view(offer, call)
	}
	return &toolv1.ParseToolCallResponse{Call: call}, nil
}

// ReviewTools reports for each call whether it would run. It has no effect.
func (t *Tools) ReviewTools(_ context.Context, request *toolv1.ReviewToolsRequest) (*toolv1.ReviewToolsResponse, error) {
	if len(request.GetPolicies()) > 0 {
		return nil, rpcerr.NotBuiltField("policies", "approval by policy")
	}
	offers, err := t.offers(request.GetParent(), request.GetTools())
	if err != nil {
		return nil, err
	}
	response := &toolv1.ReviewToolsResponse{}
	for _, call := range request.GetCalls() {
		response.Reviews = append(response.Reviews, review(offers, call))
	}
	return response, nil
}

func review(offers tool.Offers, call *toolv1.ToolCall) *toolv1.ToolReview {
	reviewed := proto.CloneOf(call)
	out := &toolv1.ToolReview{CallId: call.GetId(), Call: reviewed, Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN}
	offer, arguments, fault := execute.Check(offers, call)
	out.View = viewOf(call, view(offers.Find(call.GetFunction()), call))
	if shown := out.GetView().GetCall(); shown != nil {
		reviewed.View = shown
	}
	if fault != nil {
		out.Decision = toolv1.ReviewDecision_REVIEW_DECISION_REJECT
		out.Error = fault.Proto()
		return out
	}
	reviewed.ArgumentsJson = string(arguments)
	out.Parallel = offer.Public.GetParallel()
	if offer.Public.GetCallerRuns() {
		out.Decision = toolv1.ReviewDecision_REVIEW_DECISION_CALLER
	}
	return out
}

// viewOf is how to show a call: what its provider says of it, beside the tool's own view. Nil if there is neither.
func viewOf(call *toolv1.ToolCall, own *toolv1.ToolCallContent) *toolv1.ToolCallView {
	given := call.GetView()
	if given == nil && own == nil {
		return nil
	}
	if proto.Equal(given, own) { // It is the tool's own, from when the call was parsed.
		given = nil
	}
	return &toolv1.ToolCallView{Context: given, Call: own}
}

// view shows a call with the tool's own view, if the tool has one.
func view(offer *tool.Offer, call *toolv1.ToolCall) *toolv1.ToolCallContent {
	if offer == nil || call.GetParseError() != "" {
		return nil
	}
	return offer.View(json.RawMessage(call.GetArgumentsJson()))
}
