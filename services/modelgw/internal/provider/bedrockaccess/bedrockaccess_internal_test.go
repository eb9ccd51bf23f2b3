package bedrockaccess

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Requests that name ever other regions do not make an account grow.
func TestTheRegionsOfRequestsAreBounded(t *testing.T) {
	t.Parallel()
	all := New(API{Provider: "p", Address: Runtime}, map[string]Account{"a": {}}, http.DefaultClient)
	for i := range 3 * maxRegions {
		access, err := all.Open(provider.Spec{Account: "a"}, fmt.Sprintf("us-east-%d", i))
		require.NoError(t, err)
		require.NotNil(t, access.BearerClient())
	}
	kept := 0
	for range all.named["a"].tokens.All() {
		kept++
	}
	assert.Equal(t, maxRegions, kept)
}
