package endpoint

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
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

// A body of very many values, which is converted, is refused before anything is made of them.
func TestABodyOfVeryManyValuesIsNotConverted(t *testing.T) {
	t.Parallel()
	registry := &provider.Registry{}
	require.NoError(t, registry.Register(provider.Kind{Name: bridge, Open: func(provider.Spec) (provider.Provider, error) { return silent{}, nil }}))
	cfg := Config{}
	cfg.SetDefaults()
	cfg.WriteTimeout = 0 // What records an answer has no deadlines.
	handler := New(cfg, Deps{Auth: anybody{}, Registry: registry, Models: &unasked{}, Logger: slog.New(slog.DiscardHandler)})
	body := `{"model":"` + bridge + `/m","max_tokens":5,"messages":[` + strings.Repeat("{},", bound.RequestValues) + `{}]}`
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		assert.Equal(t, http.StatusRequestEntityTooLarge, answer.Code, path)
		assert.Contains(t, answer.Body.String(), "the body may have 200000 JSON values", path)
	}
}
