package grok

import (
	"context"
	"math"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/tokenizer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// CountTokens implements provider.TokenCounter. xAI splits a text into tokens, and counts no conversations: the texts
// of the messages and the definitions of the tools are sent as one text. A conversation with media is not counted.
func (m *model) CountTokens(ctx context.Context, r *provider.Request) (int64, error) {
	text, media := tokens.Texts(r.Messages)
	if media > 0 {
		return 0, provider.ErrCountsNone
	}
	if text += tokenizer.ToolsText(r.Tools); text == "" {
		return 0, nil
	}
	var trailer metadata.MD
	answer, err := m.tokenizer.TokenizeText(ctx, &xai.TokenizeTextRequest{Text: text, Model: string(m.name)},
		grpc.MaxCallRecvMsgSize(int(min(r.AnswerBound(), math.MaxInt32))), grpc.Trailer(&trailer))
	if err == nil {
		return int64(len(answer.GetTokens())), nil
	}
	code := status.Code(err)
	refusal, err := m.meaning(ctx, err, trailer, false)
	switch {
	case refusal != nil:
		return 0, &provider.Error{Provider: Name, Status: http.StatusBadRequest, Message: refusal.GetCompletion()}
	case code == codes.Unimplemented, code == codes.PermissionDenied: // A key has rights for each service.
		return 0, provider.ErrCountsNone
	default:
		return 0, err
	}
}
