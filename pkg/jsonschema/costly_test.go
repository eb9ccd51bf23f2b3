package jsonschema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/jsonschema"
)

// doubling is a schema of n steps, each of which applies the next one twice.
func doubling(n int, where string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{%s,"definitions":{`, where)
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/definitions/d%d"},{"$ref":"#/definitions/d%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"d%d":{"type":"object"}}}`, n)
	return b.String()
}

// A short schema cannot make a check that takes for ever.
func TestASchemaThatDoublesItsWorkIsRefused(t *testing.T) {
	t.Parallel()
	for _, where := range []string{`"allOf":[{"$ref":"#/definitions/d0"}]`, `"properties":{"a":{"items":{"$ref":"#/definitions/d0"}}}`} {
		_, err := jsonschema.Compile([]byte(doubling(100, where)))
		assert.ErrorContains(t, err, "applies more than 10000 others to one value")
		_, err = jsonschema.Compile([]byte(doubling(8, where)))
		require.NoError(t, err)
	}
}
