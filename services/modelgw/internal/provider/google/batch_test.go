package google_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/google"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	for name, kindOf := range map[string]func(google.Config) (provider.Kind, func() error){"inline": google.Kind, "files": google.KindFiling} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.RunBatch(t, providertest.BatchHarness{
				New: func(t *testing.T) (*providertest.BatchVendor, string, provider.Provider) {
					vendor, url := providertest.GoogleBatches(t)
					kind, closeIdle := kindOf(google.Config{APIKey: config.NewSecret("k"), BaseURL: url})
					t.Cleanup(func() { _ = closeIdle() })
					p, err := kind.Open(provider.Spec{Model: "gemini-2.5-flash", Account: provider.DefaultAccount})
					require.NoError(t, err)
					return vendor, url, p
				},
				Path: "/v1beta/models/gemini-2.5-flash:generateContent", Lines: name == "files", Answer: `{"id":"c1"}`, Refusal: `{"error":{"code":400,"message":"bad"}}`,
			})
		})
	}
}

// A batch beyond what the API takes inline is a file, whatever the number of its requests.
func TestALargeBatchIsAFile(t *testing.T) {
	t.Parallel()
	vendor, url := providertest.GoogleBatches(t)
	kind, closeIdle := google.Kind(google.Config{APIKey: config.NewSecret("k"), BaseURL: url})
	t.Cleanup(func() { _ = closeIdle() })
	p, err := kind.Open(provider.Spec{Model: "gemini-2.5-flash", Account: provider.DefaultAccount})
	require.NoError(t, err)
	support := p.Capabilities().Batch
	assert.Equal(t, int64(2_000_000_000), support.MaxBytes)
	for n, key := range []string{"small", "large"} {
		var lines []provider.BatchLine
		for i := range 1 + n {
			lines = append(lines, providertest.BatchLine(fmt.Sprint(key, "-", i), `{"contents":"`+strings.Repeat("x", 18_000_000)+`"}`))
		}
		_, err := support.API.Submit(t.Context(), provider.BatchIntent{Key: key, Requests: len(lines), Time: time.Now()}, lines)
		require.NoError(t, err)
		taken := vendor.Batches()[n]
		assert.Equal(t, key == "large", taken.Input != "", key)
		assert.Len(t, taken.IDs, len(lines))
	}
}

// A batch is found among those of others, whatever they are like.
func TestABatchIsFoundAmongOthers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"operations":[{"name":"batches/1","metadata":{"createTime":"","state":7,"batchStats":[]},"error":"gone"},{"name":"batches/2","metadata":{"displayName":"k"}}]}`)
	}))
	t.Cleanup(server.Close)
	kind, closeIdle := google.Kind(google.Config{APIKey: config.NewSecret("k"), BaseURL: server.URL})
	t.Cleanup(func() { _ = closeIdle() })
	p, err := kind.Open(provider.Spec{Model: "gemini-2.5-flash", Account: provider.DefaultAccount})
	require.NoError(t, err)
	id, err := p.Capabilities().Batch.API.Find(t.Context(), provider.BatchIntent{Key: "k", Requests: 1, Time: time.Now()})
	require.NoError(t, err)
	assert.Equal(t, "batches/2", id)
}
