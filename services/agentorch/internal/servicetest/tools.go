package servicetest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/jsonschema"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Tool is a scripted tool.
type Tool struct {
	// Schema is the JSON Schema of its arguments.
	Schema string
	// Parallel makes calls run concurrently.
	Parallel bool
	// StoreKeys are the entries of the run's store that it declares.
	StoreKeys []string
	// Run executes a call. The result's call id and function are filled in.
	Run func(ctx context.Context, c Call) (*toolv1.ToolResult, error)
}

// Call is a call of a scripted tool.
type Call struct {
	Name      string
	Arguments map[string]any
	Store     map[string]string
	Request   *toolv1.ExecuteToolsRequest
	// Progress reports the progress of the call.
	Progress func(line string)
}

// Tools is a tool executor. Its other methods panic.
type Tools struct {
	toolv1.ToolServiceClient
	Ledger

	// Workers delivers news of workers that connect and disconnect; nil delivers nothing.
	Workers chan *toolv1.WatchWorkersResponse
	// Tools are the tools by name.
	Tools map[string]Tool
	// Review, if set, answers reviews in place of the checks of arguments.
	Review func(*toolv1.ReviewToolsRequest) ([]*toolv1.ToolReview, error)
}

// Text is a result of one text.
func Text(text string) *toolv1.ToolResult { return &toolv1.ToolResult{Content: chat.TextContent(text)} }

func (t *Tools) definition(ref *toolv1.ToolRef) (*toolv1.ToolDefinition, bool) {
	if ref.GetDefinition() != nil {
		return ref.GetDefinition(), true
	}
	tool, ok := t.Tools[ref.GetName()]
	if !ok {
		return nil, false
	}
	name := ref.GetName()
	if ref.GetRename() != "" {
		name = ref.GetRename()
	}
	schema := tool.Schema
	if schema == "" {
		schema = `{"type": "object"}`
	}
	return &toolv1.ToolDefinition{
		Info: &toolv1.ToolInfo{Name: name, Description: "A tool of a test.", ParametersJson: schema}, Parallel: tool.Parallel, StoreKeys: tool.StoreKeys,
	}, true
}

// ResolveTools implements the client.
func (t *Tools) ResolveTools(_ context.Context, r *toolv1.ResolveToolsRequest, _ ...grpc.CallOption) (*toolv1.ResolveToolsResponse, error) {
	answer := &toolv1.ResolveToolsResponse{}
	for i, ref := range r.GetTools() {
		d, ok := t.definition(ref)
		if !ok {
			return nil, rpcerr.In(fmt.Sprintf("tools[%d]", i), rpcerr.ToolNotFound(ref.GetName(), slices.Sorted(maps.Keys(t.Tools))))
		}
		answer.Tools = append(answer.Tools, d)
	}
	return answer, nil
}

// lookup finds the definition and the tool that a model calls by a name.
func (t *Tools) lookup(refs []*toolv1.ToolRef, function string) (*toolv1.ToolDefinition, Tool, bool) {
	for _, ref := range refs {
		if d, ok := t.definition(ref); ok && d.GetInfo().GetName() == function {
			return d, t.Tools[ref.GetName()], true
		}
	}
	return nil, Tool{}, false
}

// ReviewTools implements the client.
func (t *Tools) ReviewTools(_ context.Context, r *toolv1.ReviewToolsRequest, _ ...grpc.CallOption) (*toolv1.ReviewToolsResponse, error) {
	if t.Review != nil {
		reviews, err := t.Review(r)
		return &toolv1.ReviewToolsResponse{Reviews: reviews}, err
	}
	answer := &toolv1.ReviewToolsResponse{}
	for _, call := range r.GetCalls() {
		answer.Reviews = append(answer.Reviews, t.review(r.GetTools(), call))
	}
	return answer, nil
}

func (t *Tools) review(refs []*toolv1.ToolRef, call *toolv1.ToolCall) *toolv1.ToolReview {
	review := &toolv1.ToolReview{CallId: call.GetId(), Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN, Call: proto.CloneOf(call)}
	reject := func(format string, args ...any) *toolv1.ToolReview {
		review.Decision = toolv1.ReviewDecision_REVIEW_DECISION_REJECT
		review.Error = &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, Message: fmt.Sprintf(format, args...)}
		return review
	}
	d, _, ok := t.lookup(refs, call.GetFunction())
	switch {
	case call.GetParseError() != "":
		return reject("%s", call.GetParseError())
	case !ok:
		return reject("there is no tool %s", call.GetFunction())
	}
	schema, err := jsonschema.Compile(json.RawMessage(d.GetInfo().GetParametersJson()))
	if err != nil {
		return reject("%v", err)
	}
	arguments := call.GetArgumentsJson()
	if arguments == "" {
		arguments = "{}"
	}
	if violations, err := schema.Check(json.RawMessage(arguments)); err != nil || len(violations) > 0 {
		return reject("%d arguments do not fit: %v %v", len(violations), violations, err)
	}
	review.Parallel = d.GetParallel()
	if d.GetCallerRuns() {
		review.Decision = toolv1.ReviewDecision_REVIEW_DECISION_CALLER
	}
	return review
}

// ExecuteTools implements the client. The calls of a request run side by side.
func (t *Tools) ExecuteTools(ctx context.Context, r *toolv1.ExecuteToolsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[toolv1.ExecuteToolsResponse], error) {
	results := make(chan executed, len(r.GetCalls()))
	progress := make(chan *toolv1.ToolProgress, 100) // far more than tests send
	var calls sync.WaitGroup
	for i, call := range r.GetCalls() {
		calls.Go(func() {
			result, err := t.execute(ctx, r, i, func(line string) {
				progress <- &toolv1.ToolProgress{CallId: call.GetId(), Index: int32(i), Note: &effectv1.Note{Message: line, Time: timestamppb.Now()}}
			})
			if err == nil {
				result.Index = int32(i)
			}
			results <- executed{result, err}
		})
	}
	go func() { calls.Wait(); close(results) }()
	return &resultStream{results: results, progress: progress}, nil
}

type executed struct {
	result *toolv1.ToolResult
	err    error
}

// execute executes the call at a place.
func (t *Tools) execute(ctx context.Context, r *toolv1.ExecuteToolsRequest, index int, progress func(string)) (*toolv1.ToolResult, error) {
	call, content := r.GetCalls()[index], proto.CloneOf(r)
	content.Attribution, content.Timeout, content.Calls = nil, nil, []*toolv1.ToolCall{call}
	key := keyOf(r.GetParent(), r.GetRequestId(), strconv.Itoa(index), call.GetId())
	done, err := t.do(ctx, key, content, func(ctx context.Context) (any, error) {
		_, tool, ok := t.lookup(r.GetTools(), call.GetFunction())
		if !ok || tool.Run == nil {
			return nil, rpcerr.ToolNotFound(call.GetFunction(), nil)
		}
		arguments := map[string]any{}
		if call.GetArgumentsJson() != "" {
			if err := json.Unmarshal([]byte(call.GetArgumentsJson()), &arguments); err != nil {
				return nil, err
			}
		}
		return tool.Run(ctx, Call{Name: call.GetFunction(), Arguments: arguments, Store: r.GetStore(), Request: r, Progress: progress})
	})
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED) {
		return &toolv1.ToolResult{
			CallId: call.GetId(), Function: call.GetFunction(), Content: chat.TextContent(""),
			Error: &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, Message: "the call was cancelled"},
		}, nil
	}
	if err != nil {
		return nil, err
	}
	kept, _ := done.(*toolv1.ToolResult)
	result := proto.CloneOf(kept)
	result.CallId, result.Function, result.ArgumentsJson = call.GetId(), call.GetFunction(), call.GetArgumentsJson()
	if result.GetTiming() == nil {
		result.Timing = &effectv1.Timing{Working: durationpb.New(0), Attempts: 1}
	}
	return result, nil
}

type resultStream struct {
	grpc.ServerStreamingClient[toolv1.ExecuteToolsResponse]
	results  chan executed
	progress chan *toolv1.ToolProgress
}

// Recv implements the stream.
func (s *resultStream) Recv() (*toolv1.ExecuteToolsResponse, error) {
	var (
		one executed
		ok  bool
	)
	select {
	case p := <-s.progress:
		return &toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Progress{Progress: p}}, nil
	case one, ok = <-s.results:
	}
	switch {
	case !ok:
		return nil, io.EOF
	case one.err != nil:
		return nil, one.err
	}
	return &toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Result{Result: one.result}}, nil
}

// WatchWorkers implements the client.
func (t *Tools) WatchWorkers(ctx context.Context, _ *toolv1.WatchWorkersRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[toolv1.WatchWorkersResponse], error) {
	return news[toolv1.WatchWorkersResponse]{ctx: ctx, from: t.Workers}, nil
}

// CancelTools implements the client.
func (t *Tools) CancelTools(_ context.Context, r *toolv1.CancelToolsRequest, _ ...grpc.CallOption) (*toolv1.CancelToolsResponse, error) {
	answer := &toolv1.CancelToolsResponse{}
	for _, call := range r.GetCalls() {
		if t.cancel(keyOf(r.GetParent(), r.GetRequestId(), strconv.Itoa(int(call.GetIndex())), call.GetCallId())) {
			answer.AlreadyDone = append(answer.AlreadyDone, call)
		}
	}
	return answer, nil
}

// ReleaseTools implements the client.
func (t *Tools) ReleaseTools(_ context.Context, r *toolv1.ReleaseToolsRequest, _ ...grpc.CallOption) (*toolv1.ReleaseToolsResponse, error) {
	for _, call := range r.GetCalls() {
		t.release(keyOf(r.GetParent(), r.GetRequestId(), strconv.Itoa(int(call.GetIndex())), call.GetCallId()))
	}
	return &toolv1.ReleaseToolsResponse{}, nil
}
