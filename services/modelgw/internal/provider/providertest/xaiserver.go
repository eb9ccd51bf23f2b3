package providertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// XAIServer starts a server that speaks xAI's chat API over gRPC and returns these answers in order. It returns its
// address.
func XAIServer(t testing.TB, answers ...Answer) string {
	t.Helper()
	v := &vendor{answers: answers}
	return serveGRPC(t, nil, &xaiChat{answer: func(ctx context.Context, _ string, _ *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
		a := v.next()
		if err := retry.Sleep(ctx, a.Delay); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		return a.xai()
	}}).URL
}

// serveGRPC serves xAI's chat API until the test ends, beside what a handler serves over HTTP; nil serves nothing.
func serveGRPC(t testing.TB, handler http.Handler, chat xai.ChatServer) *httptest.Server {
	t.Helper()
	return serveXAI(t, handler, func(rpc *grpc.Server) { xai.RegisterChatServer(rpc, chat) })
}

// serveXAI is serveGRPC for the services that register adds.
func serveXAI(t testing.TB, handler http.Handler, register func(*grpc.Server)) *httptest.Server {
	t.Helper()
	rpc := grpc.NewServer()
	register(rpc)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			rpc.ServeHTTP(w, r)
		case handler != nil:
			handler.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// xaiChat is xAI's chat service.
type xaiChat struct {
	xai.UnimplementedChatServer
	// answer answers the calls of a method.
	answer func(ctx context.Context, method string, request *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error)
}

// GetCompletion implements xai.ChatServer.
func (c *xaiChat) GetCompletion(ctx context.Context, request *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
	return c.answer(ctx, xai.Chat_GetCompletion_FullMethodName, request)
}

// GetCompletionChunk implements xai.ChatServer. It cuts texts into pieces of three bytes; calls are whole.
func (c *xaiChat) GetCompletionChunk(request *xai.GetCompletionsRequest, stream grpc.ServerStreamingServer[xai.GetChatCompletionChunk]) error {
	response, err := c.answer(stream.Context(), xai.Chat_GetCompletionChunk_FullMethodName, request)
	if err != nil {
		return err
	}
	for _, output := range response.GetOutputs() {
		said := output.GetMessage()
		send := func(finish xai.FinishReason, delta *xai.Delta) error {
			delta.Role = said.GetRole()
			return stream.Send(&xai.GetChatCompletionChunk{
				Id: response.GetId(), Model: response.GetModel(), Usage: response.GetUsage(),
				Outputs: []*xai.CompletionOutputChunk{{Index: output.GetIndex(), Delta: delta, FinishReason: finish}},
			})
		}
		for _, text := range cut(said.GetContent()) {
			if err := send(xai.FinishReason_REASON_INVALID, &xai.Delta{Content: text}); err != nil {
				return err
			}
		}
		last := &xai.Delta{ToolCalls: said.GetToolCalls(), EncryptedContent: said.GetEncryptedContent(), ReasoningContent: said.GetReasoningContent()}
		if err := send(output.GetFinishReason(), last); err != nil {
			return err
		}
	}
	return nil
}

// xaiCodes are the codes of gRPC for the statuses of answers.
var xaiCodes = map[int]codes.Code{
	400: codes.InvalidArgument, 401: codes.Unauthenticated, 409: codes.Aborted, 429: codes.ResourceExhausted, 500: codes.Unknown, 503: codes.Unavailable,
}

func (a Answer) xai() (*xai.GetChatCompletionResponse, error) {
	if a.Status != 0 {
		s, err := status.New(xaiCodes[a.Status], "failure").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(a.RetryAfter)})
		if err != nil {
			return nil, err
		}
		return nil, s.Err()
	}
	message, finish := &xai.CompletionMessage{Role: xai.MessageRole_ROLE_ASSISTANT, Content: a.Text}, xai.FinishReason_REASON_STOP
	if a.Function != "" {
		finish = xai.FinishReason_REASON_TOOL_CALLS
		message.ToolCalls = []*xai.ToolCall{{
			Id: "call_1", Type: xai.ToolCallType_TOOL_CALL_TYPE_CLIENT_SIDE_TOOL,
			Tool: &xai.ToolCall_Function{Function: &xai.FunctionCall{Name: a.Function, Arguments: a.Arguments}},
		}}
	}
	return &xai.GetChatCompletionResponse{
		Id: "r1", Model: "served", Usage: &xai.SamplingUsage{PromptTokens: 3, CompletionTokens: 2, TotalTokens: 5},
		Outputs: []*xai.CompletionOutput{{Message: message, FinishReason: finish}},
	}, nil
}
