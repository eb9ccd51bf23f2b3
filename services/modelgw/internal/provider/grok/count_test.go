package grok_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// words is xAI's tokenizer, of which each word is a token.
type words struct {
	xai.UnimplementedTokenizeServer
	err error
}

// TokenizeText implements xai.TokenizeServer.
func (w *words) TokenizeText(_ context.Context, r *xai.TokenizeTextRequest) (*xai.TokenizeTextResponse, error) {
	if w.err != nil {
		return nil, w.err
	}
	answer := &xai.TokenizeTextResponse{}
	for i := range strings.Fields(r.GetModel() + " " + r.GetText()) {
		answer.Tokens = append(answer.Tokens, &xai.Token{TokenId: uint32(i)})
	}
	return answer, nil
}

func count(t *testing.T, err error, r *provider.Request) (int64, error) {
	t.Helper()
	p := opened(t, "grok-4", serve(t, &server{tokenizer: &words{err: err}}))
	return p.(provider.TokenCounter).CountTokens(t.Context(), r)
}

func TestTextsAreCountedByTheServersTokenizer(t *testing.T) {
	t.Parallel()
	tokens, err := count(t, nil, &provider.Request{
		Messages: []*modelv1.ChatMessage{
			chat.System("be brief"), chat.User("how are you"),
			chat.Assistant("", chat.Call("c", "look", `{"at": "it"}`)),
		},
		Tools: []*toolv1.ToolInfo{{Name: "look", Description: "look at it"}},
	})
	require.NoError(t, err)
	const text = `be brief how are you look {"at": "it"}` +
		`{"type":"function","function":{"name":"look","description":"look at it"}}`
	assert.EqualValues(t, len(strings.Fields("grok-4 "+text)), tokens)
}

func TestWhatTheServersTokenizerDoesNotCount(t *testing.T) {
	t.Parallel()
	picture := chat.User("")
	picture.Content = chat.ListContent(chat.ImagePart("data:image/png;base64,AAAA"))
	_, err := count(t, nil, &provider.Request{Messages: []*modelv1.ChatMessage{picture}})
	require.ErrorIs(t, err, provider.ErrCountsNone)
	asked := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}}
	for _, code := range []codes.Code{codes.Unimplemented, codes.PermissionDenied} {
		_, err = count(t, status.Error(code, "no"), asked)
		require.ErrorIs(t, err, provider.ErrCountsNone)
	}
	for _, refusal := range []error{
		status.Error(codes.Unavailable, "of key-of-the-account"),
		status.Error(codes.InvalidArgument, "prompt length of key-of-the-account"),
	} {
		_, err = count(t, refusal, asked)
		failure, ok := provider.As(err)
		require.True(t, ok, "%v", err)
		assert.Contains(t, failure.Message, "of ")
		assert.NotContains(t, failure.Message, "key-of-the-account")
	}
}
