package bedrock

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
)

// arn precedes the id of a model, or of a profile, in its ARN. Those of other kinds do not say what model they are.
var arn = regexp.MustCompile(`^arn:[^/]*:(foundation-model|inference-profile)/`)

// counted is the id of the model, since tokens are counted for models and not for profiles; ok is false if the name
// does not say it.
func (n name) counted() (model string, ok bool) {
	id := arn.ReplaceAllString(string(n), "")
	return modeldata.WithoutRegion(id), !strings.HasPrefix(id, "arn:")
}

// CountTokens implements provider.TokenCounter. A model that Bedrock does not count, and an account without the right
// `bedrock:CountTokens`, are asked once.
func (m *model) CountTokens(ctx context.Context, r *provider.Request) (int64, error) {
	id, named := m.name.counted()
	if !named || m.countsNone.Load() {
		return 0, provider.ErrCountsNone
	}
	x, call, err := m.target(ctx, id, "count-tokens")
	if err != nil {
		return 0, err
	}
	x.Codec = format.Codec{} // The other one hides secrets in events.
	tokens, err := x.Count(ctx, call, m.plan(r).AppendCount)
	failure, ok := provider.As(err)
	if ok && failure.Auth {
		m.access.Forget()
	}
	if ok && (bedrockaccess.LacksRight(err) || isNotCounted(failure, id != string(m.name))) {
		m.countsNone.Store(true)
		return 0, provider.ErrCountsNone
	}
	return tokens, err
}

// unknownModel is the type of errors for a model that there is not, or no more.
const unknownModel = "ResourceNotFoundException"

// isNotCounted reports whether an error means that the tokens of a model are not counted. Some regions have a model by
// its profiles alone, so that an error about the id that we took from another name does not concern the caller's.
func isNotCounted(e *provider.Error, derived bool) bool {
	said, ok := errors.AsType[*dialect.Error](e)
	switch {
	case strings.Contains(e.Message, "counting tokens"):
		return true
	case e.Status == http.StatusNotFound:
		return derived || !ok || said.Type != unknownModel
	default:
		about := strings.Contains(e.Message, "model identifier") || strings.Contains(e.Message, "on-demand throughput")
		return derived && about
	}
}
