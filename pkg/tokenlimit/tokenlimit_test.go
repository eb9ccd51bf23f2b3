package tokenlimit_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/tokenlimit"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		tokens  int64
		formula string
	}{
		"0": {0, ""}, "500000": {500_000, ""}, "500_000": {500_000, ""}, "500k": {500_000, ""}, "1.1k": {1100, ""}, "2b": {2_000_000_000, ""},
		"500K": {500_000, ""}, "1 k": {1000, ""}, "2B": {2_000_000_000, ""}, "Output:1M": {1_000_000, "output"}, "ALL:3": {3, "all"}, "Input:3": {3, "Input"},
		" output : 1m ": {1_000_000, "output"}, "(input*0.1)+output:59": {59, "(input*0.1)+output"},
	} {
		tokens, formula, err := tokenlimit.Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want.tokens, tokens, text)
		assert.Equal(t, want.formula, formula, text)
	}
	for _, text := range []string{"", "k", "ten", "1.5", "-1", "-1k", "NaN", "Inf", "1e300", "10kk", "1e3", "0x1p4", "output:", ":5"} {
		_, _, err := tokenlimit.Parse(text)
		assert.ErrorContains(t, err, "tokens", text)
	}
}
