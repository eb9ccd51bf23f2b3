package provider_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestAnAddressBelowAnotherHasBothQueries(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ address, path, want string }{
		{"https://h/v1/responses", "", "https://h/v1/responses"},
		{"https://h/v1/responses", "/input_tokens", "https://h/v1/responses/input_tokens"},
		{"https://h/responses?api-version=v1", "/input_tokens", "https://h/responses/input_tokens?api-version=v1"},
		{"https://h/m:generateContent", "?alt=sse", "https://h/m:generateContent?alt=sse"},
		{"https://h/responses?version=v1", "/input_tokens?a=b", "https://h/responses/input_tokens?version=v1&a=b"},
	} {
		assert.Equal(t, test.want, provider.Below(test.address, test.path))
	}
}
