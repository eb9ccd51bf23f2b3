package bedrock

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	format "github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// profile precedes the id of a model in that of a profile, which spreads calls over regions. Tokens are counted by
// models alone.
var profile = regexp.MustCompile(`^(us-gov|us|eu|apac|ap|au|jp|ca|sa|me|af|il|global)\.`)

// CountTokens implements provider.TokenCounter. A model that Bedrock does not count, and an account without the right
// `bedrock:CountTokens`, are asked once.
func (m *model) CountTokens(ctx context.Context, r *provider.Request) (int64, error) {
	if m.countsNone.Load() {
		return 0, provider.ErrCountsNone
	}
	x, call, err := m.target(ctx, profile.ReplaceAllString(string(m.name), ""), "count-tokens")
	if err != nil {
		return 0, err
	}
	x.Codec = format.Codec{} // The other one hides secrets in events.
	tokens, err := x.Count(ctx, call, m.plan(r).AppendCount)
	failure, ok := provider.As(err)
	if ok && failure.Auth {
		m.access.Forget()
	}
	if ok && (failure.Status == http.StatusNotFound || isDenied(err) || strings.Contains(failure.Message, notCounted)) {
		m.countsNone.Store(true)
		return 0, provider.ErrCountsNone
	}
	return tokens, err
}

// notCounted is in the refusal of models whose tokens are not counted.
const notCounted = "counting tokens"
