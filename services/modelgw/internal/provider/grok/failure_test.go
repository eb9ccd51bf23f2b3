package grok_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

func question() *provider.Request {
	return &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}}
}

// watched is a request whose answer is streamed.
func watched() *provider.Request {
	r := question()
	r.Progress = func() {}
	return r
}

func TestCodesHaveTheirMeaning(t *testing.T) {
	t.Parallel()
	delayed, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(34 * time.Second)})
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		err  error
		want provider.Error
	}{
		"a rate limit with a delay": {delayed.Err(), provider.Error{Class: provider.RateLimit, Status: 429, RetryAfter: 34 * time.Second}},
		"a rate limit":              {status.Error(codes.ResourceExhausted, "slow down"), provider.Error{Class: provider.RateLimit, Status: 429}},
		"an unknown failure":        {status.Error(codes.Unknown, "odd"), provider.Error{Class: provider.Transient, Status: 500}},
		"out of service":            {status.Error(codes.Unavailable, "soon"), provider.Error{Class: provider.Transient, Status: 503}},
		"late":                      {status.Error(codes.DeadlineExceeded, "late"), provider.Error{Class: provider.Transient, Status: 504}},
		"a fault of the server":     {status.Error(codes.Internal, "broken"), provider.Error{Status: 500}},
		"a wrong request":           {status.Error(codes.InvalidArgument, "no such field"), provider.Error{Status: 400}},
		"not allowed":               {status.Error(codes.PermissionDenied, "this team may not"), provider.Error{Status: 403}},
		"a wrong key":               {status.Error(codes.Unauthenticated, "key-of-the-account is wrong"), provider.Error{Status: 401, Auth: true}},
		"an unknown model":          {status.Error(codes.NotFound, "no such model"), provider.Error{Status: 404}},
		"the key in another error":  {status.Error(codes.FailedPrecondition, "the key key-of-the-account is spent"), provider.Error{Status: 400}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []*provider.Request{question(), watched()} {
				address := serve(t, &server{
					whole: func(context.Context, *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
						return nil, tt.err
					},
					pieces: func(*xai.GetCompletionsRequest, grpc.ServerStreamingServer[xai.GetChatCompletionChunk]) error {
						return tt.err
					},
				})
				r.Record = provider.RecordFailures
				_, err := opened(t, "grok-4-fast", address).Generate(t.Context(), r)
				failure, ok := provider.As(err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, tt.want, provider.Error{Class: failure.Class, Status: failure.Status, Auth: failure.Auth, RetryAfter: failure.RetryAfter})
				assert.NotContains(t, failure.Message+err.Error()+failure.Call.String(), "key-of-the-account")
				assert.Contains(t, failure.Call.GetResponseJson(), `"message"`)
				assert.True(t, failure.Call.GetError())
			}
		})
	}
}

// A delay may be in the trailer too, as proxies send it.
func TestADelayInTheTrailerCounts(t *testing.T) {
	t.Parallel()
	address := serve(t, &server{whole: func(ctx context.Context, _ *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("retry-after", "7"))
		return nil, status.Error(codes.ResourceExhausted, "slow down")
	}})
	_, err := opened(t, "grok-4-fast", address).Generate(t.Context(), question())
	failure, ok := provider.As(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 7*time.Second, failure.RetryAfter)
}

// Refusals that the model, or a filter before it, has decided are outputs.
func TestRefusalsThatAreOutputs(t *testing.T) {
	t.Parallel()
	for said, tt := range map[string]struct {
		code codes.Code
		stop modelv1.StopReason
	}{
		"This model's maximum prompt length is 100":       {codes.InvalidArgument, modelv1.StopReason_STOP_REASON_MODEL_LENGTH},
		"[input_too_large] 300 tokens":                    {codes.InvalidArgument, modelv1.StopReason_STOP_REASON_MODEL_LENGTH},
		"Failed check: SAFETY_CHECK_TYPE_BIO":             {codes.PermissionDenied, modelv1.StopReason_STOP_REASON_CONTENT_FILTER},
		"Sorry, I can't help with that request. Try else": {codes.PermissionDenied, modelv1.StopReason_STOP_REASON_CONTENT_FILTER},
	} {
		r := question()
		r.Record = provider.RecordAll
		response, err := opened(t, "grok-4-fast", answering(t, nil, status.Error(tt.code, said))).Generate(t.Context(), r)
		require.NoError(t, err, said)
		assert.Equal(t, tt.stop, chat.StopReason(response.Output), said)
		assert.Equal(t, said, chat.Completion(response.Output))
		assert.Equal(t, tt.stop == modelv1.StopReason_STOP_REASON_CONTENT_FILTER, response.Output.GetChoices()[0].GetStopDetails() != nil, said)
		assert.Contains(t, response.Call.GetResponseJson(), said)
	}
}

// An error within a stream comes after the server has accepted the request: its own faults may pass.
func TestErrorsWithinAStream(t *testing.T) {
	t.Parallel()
	begun := piece(0, 0, &xai.Delta{Content: "hal"})
	begun.Usage = &xai.SamplingUsage{PromptTokens: 3, CompletionTokens: 1, TotalTokens: 4}
	for name, tt := range map[string]struct {
		err   error
		class provider.Class
	}{
		"a fault of the server": {status.Error(codes.Internal, "broken"), provider.Transient},
		"out of service":        {status.Error(codes.Unavailable, "gone"), provider.Transient},
		"our fault":             {status.Error(codes.InvalidArgument, "no"), provider.Final},
	} {
		r, unfinished := watched(), int64(0)
		r.Record = provider.RecordFailures
		r.Unfinished = func(said *modelv1.ModelUsage, pieces int64) { unfinished = said.GetTotalTokens() + pieces }
		_, err := opened(t, "grok-4-fast", streaming(t, tt.err, begun)).Generate(t.Context(), r)
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, tt.class, failure.Class, name)
		assert.Equal(t, int64(5), unfinished, name)
		assert.Contains(t, failure.Call.GetResponseJson(), `"hal"`, name)
	}
	r := watched()
	r.Unfinished = func(*modelv1.ModelUsage, int64) { assert.Fail(t, "an output is an end") }
	response, err := opened(t, "grok-4-fast", streaming(t, status.Error(codes.PermissionDenied, "SAFETY_CHECK_TYPE_BIO"), begun)).Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_CONTENT_FILTER, chat.StopReason(response.Output))
	assert.Equal(t, int64(4), response.Output.GetUsage().GetTotalTokens())
}

// An answer over its bound is a failure of its own, although gRPC has the same code for it as for a rate limit.
func TestAnAnswerOverItsBoundIsNoRateLimit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 1000)
	var pieces []*xai.GetChatCompletionChunk
	for range 10 {
		pieces = append(pieces, piece(0, 0, &xai.Delta{Content: long[:400]}))
	}
	for name, tt := range map[string]struct {
		address string
		r       *provider.Request
	}{
		"whole":       {answering(t, said(long), nil), question()},
		"in pieces":   {streaming(t, nil, pieces...), watched()},
		"in one":      {streaming(t, nil, piece(0, 0, &xai.Delta{Content: long})), watched()},
		"with an end": {streaming(t, nil, append(pieces, piece(0, xai.FinishReason_REASON_STOP, &xai.Delta{}))...), watched()},
	} {
		tt.r.MaxAnswerBytes = 1000
		_, err := opened(t, "grok-4-fast", tt.address).Generate(t.Context(), tt.r)
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, provider.Final, failure.Class, name)
		assert.True(t, failure.Invalid, name)
		assert.ErrorContains(t, err, "max_answer_bytes", name)
	}
}

// What is no answer, and a stream without one.
func TestAnswersWithoutMeaning(t *testing.T) {
	t.Parallel()
	foreign := said("")
	foreign.Outputs[0].Message.ToolCalls = []*xai.ToolCall{{Id: "c", Type: xai.ToolCallType_TOOL_CALL_TYPE_IMAGE_GENERATION_TOOL}}
	for name, tt := range map[string]struct {
		address string
		r       *provider.Request
		class   provider.Class
		invalid bool
	}{
		"no output":                  {answering(t, &xai.GetChatCompletionResponse{}, nil), question(), provider.Final, true},
		"a tool that no one offered": {answering(t, foreign, nil), question(), provider.Final, true},
		"a stream without a piece":   {streaming(t, nil), watched(), provider.Transient, false},
		"a stream without an output": {streaming(t, nil, &xai.GetChatCompletionChunk{Id: "r"}), watched(), provider.Final, true},
	} {
		_, err := opened(t, "grok-4-fast", tt.address).Generate(t.Context(), tt.r)
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, []any{tt.class, tt.invalid, 200}, []any{failure.Class, failure.Invalid, failure.Status}, name)
	}
}

// The deadline of a call reaches the server, which may notice it first: the call has still ended by itself.
func TestAServerThatNoticesTheDeadlineFirst(t *testing.T) {
	t.Parallel()
	address := serve(t, &server{whole: func(ctx context.Context, _ *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
		_, has := ctx.Deadline()
		assert.True(t, has)
		return nil, status.Error(codes.DeadlineExceeded, "late")
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := opened(t, "grok-4-fast", address).Generate(ctx, question())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, isUpstream := provider.As(err)
	assert.False(t, isUpstream)
}
