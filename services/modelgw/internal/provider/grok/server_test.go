package grok_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// server is xAI's chat API with these answers.
type server struct {
	xai.UnimplementedChatServer
	tokenizer xai.TokenizeServer // nil: it has none
	whole     func(context.Context, *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error)
	pieces    func(*xai.GetCompletionsRequest, grpc.ServerStreamingServer[xai.GetChatCompletionChunk]) error
}

// GetCompletion implements xai.ChatServer.
func (s *server) GetCompletion(ctx context.Context, r *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
	return s.whole(ctx, r)
}

// GetCompletionChunk implements xai.ChatServer.
func (s *server) GetCompletionChunk(r *xai.GetCompletionsRequest, stream grpc.ServerStreamingServer[xai.GetChatCompletionChunk]) error {
	return s.pieces(r, stream)
}

// serve serves until the test ends, and returns the host and port.
func serve(t testing.TB, s *server, options ...grpc.ServerOption) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	rpc := grpc.NewServer(options...)
	xai.RegisterChatServer(rpc, s)
	if s.tokenizer != nil {
		xai.RegisterTokenizeServer(rpc, s.tokenizer)
	}
	go func() { _ = rpc.Serve(l) }()
	t.Cleanup(rpc.Stop)
	return l.Addr().String()
}

// answering is a server with one answer, or one failure.
func answering(t testing.TB, response *xai.GetChatCompletionResponse, err error) string {
	t.Helper()
	return serve(t, &server{whole: func(context.Context, *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
		return response, err
	}})
}

// streaming is a server that sends these pieces, and ends with an error or without.
func streaming(t testing.TB, err error, chunks ...*xai.GetChatCompletionChunk) string {
	t.Helper()
	return serve(t, &server{pieces: func(_ *xai.GetCompletionsRequest, stream grpc.ServerStreamingServer[xai.GetChatCompletionChunk]) error {
		for _, chunk := range chunks {
			if err := stream.Send(chunk); err != nil {
				return err
			}
		}
		return err
	}})
}

// said is an answer with a text.
func said(text string) *xai.GetChatCompletionResponse {
	return &xai.GetChatCompletionResponse{Outputs: []*xai.CompletionOutput{{
		FinishReason: xai.FinishReason_REASON_STOP, Message: &xai.CompletionMessage{Role: xai.MessageRole_ROLE_ASSISTANT, Content: text},
	}}}
}

// piece is a piece of a step.
func piece(index int32, finish xai.FinishReason, delta *xai.Delta) *xai.GetChatCompletionChunk {
	return &xai.GetChatCompletionChunk{Outputs: []*xai.CompletionOutputChunk{{Index: index, FinishReason: finish, Delta: delta}}}
}

// header is a call's metadata under a name.
func header(ctx context.Context, name string) []string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md.Get(name)
}
