package openapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/gateway/internal/openapi"
)

var inBraces = regexp.MustCompile(`{([^/]*)}`)

// Whoever generates a client of the document fills the braces of a path with the parameters of that name.
func TestEachPathHasItsParameters(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	openapi.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil))
	var document struct {
		Swagger string `json:"swagger"`
		Paths   map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Required bool
			} `json:"parameters"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &document))
	assert.Equal(t, "2.0", document.Swagger)
	assert.Greater(t, len(document.Paths), 100)
	for path, methods := range document.Paths {
		var named []string
		for _, found := range inBraces.FindAllStringSubmatch(path, -1) {
			named = append(named, found[1])
		}
		assert.NotContains(t, path, "*")
		for method, operation := range methods {
			var has []string
			for _, p := range operation.Parameters {
				if p.In == "path" {
					assert.True(t, p.Required, "%s %s: %s", method, path, p.Name)
					has = append(has, p.Name)
				}
			}
			assert.ElementsMatch(t, named, has, "%s %s", method, path)
			assert.Len(t, slices.Compact(slices.Sorted(slices.Values(has))), len(has), "%s %s", method, path)
		}
	}
	for _, path := range []string{
		"/api/v1/accounts/{provider}/{account}/budgets/{budget}", "/api/v1/accounts/{provider}/{account}/connectionPools/{connectionPool}",
		"/api/v1/projects/{project}/budgets/{budget}", "/api/v1/providers/{provider}/models/{model}",
	} {
		_, has := document.Paths[path]
		assert.True(t, has, path)
	}
}
