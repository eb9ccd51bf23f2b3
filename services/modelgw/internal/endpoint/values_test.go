package endpoint

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// unasked are models that no request reaches.
type unasked struct{ bridged }

func (unasked) CountTokens(context.Context, *modelv1.CountTokensRequest) (*modelv1.CountTokensResponse, error) {
	panic("a request that is refused was read")
}

func (unasked) Answer(context.Context, *modelv1.GenerateRequest, time.Duration) (*modelv1.GenerateResponse, error) {
	panic("a request that is refused was read")
}

// over are the endpoints over scripted models.
func over(t *testing.T, models Models) http.Handler {
	t.Helper()
	registry := &provider.Registry{}
	require.NoError(t, registry.Register(provider.Kind{Name: bridge, Open: func(provider.Spec) (provider.Provider, error) { return silent{}, nil }}))
	cfg := Config{}
	cfg.SetDefaults()
	cfg.WriteTimeout = 0 // What records an answer has no deadlines.
	return New(cfg, Deps{Auth: anybody{}, Registry: registry, Models: models, Logger: slog.New(slog.DiscardHandler)})
}

// A body of very many values, which is converted, is refused before anything is made of them.
func TestABodyOfVeryManyValuesIsNotConverted(t *testing.T) {
	t.Parallel()
	handler := over(t, &unasked{})
	body := `{"model":"` + bridge + `/m","max_tokens":5,"messages":[` + strings.Repeat("{},", bound.RequestValues) + `{}]}`
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		assert.Equal(t, http.StatusRequestEntityTooLarge, answer.Code, path)
		assert.Contains(t, answer.Body.String(), "the body may have 200000 JSON values", path)
	}
}

// endless are models whose streams begin, and end with an output that is no answer.
type endless struct{ bridged }

func (endless) Follow(_ context.Context, _ *modelv1.GenerateRequest, _ time.Duration, emit func(*modelv1.StreamGenerateResponse) error) error {
	if err := emit(&modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Delta{Delta: dialect.TextDelta("a")}}); err != nil {
		return err
	}
	return emit(&modelv1.StreamGenerateResponse{Event: &modelv1.StreamGenerateResponse_Completed{Completed: &modelv1.GenerateResponse{Output: &modelv1.ModelOutput{}}}})
}

// A list that fails at its end ends with the failure, and is a list.
func TestAListEndsOnce(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	body := strings.NewReader(`{"contents":[{"parts":[{"text":"q"}]}]}`)
	over(t, &endless{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1beta/models/"+bridge+"/m:streamGenerateContent", body))
	var list []map[string]any
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &list), answer.Body)
	require.Len(t, list, 2)
	assert.Contains(t, list[1], "error")
}

// The gateway passes on what is asked below these paths, and nothing else.
func TestEveryRouteIsBelowAPathOfVendors(t *testing.T) {
	t.Parallel()
	for _, route := range (&Endpoints{}).routes() {
		below := dialect.Serves(route.path)
		assert.True(t, below || route.path == "/", route.path)
	}
}
