package modelgw_test

import (
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw"
)

// A name that is not UTF-8 can be no label of a metric: after one call of it no scrape would have an answer.
func TestANameThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	g := serveMessages(t, vendorWith(t, says(http.StatusOK, "application/json", `{}`)), func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
	answer := g.post(t, geminiPath+"anthropic/claude%ff:generateContent", `{"contents":[{"parts":[{"text":"q"}]}]}`)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
	read(t, answer)
	_, err := registry.Gather()
	require.NoError(t, err)
}
