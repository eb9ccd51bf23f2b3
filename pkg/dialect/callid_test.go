package dialect_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// Vendors refuse a conversation with ids of calls that their own models do not make.
func TestIDsOfCallsAreThoseThatAServerTakes(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "call_1", "toolu_01-x", strings.Repeat("x", 64)} {
		assert.Equal(t, id, dialect.PlainCallID(id, 64))
		assert.Equal(t, id, dialect.ShortCallID(id, 64))
	}
	other := "functions.find:0"
	assert.Equal(t, other, dialect.ShortCallID(other, 64))
	changed := map[string]bool{}
	for _, id := range []string{other, "functions.find:1", "é", strings.Repeat("x", 65)} {
		plain := dialect.PlainCallID(id, 64)
		assert.Regexp(t, `^[A-Za-z0-9_-]{1,64}$`, plain)
		assert.Equal(t, plain, dialect.PlainCallID(id, 64))
		changed[plain] = true
	}
	assert.Len(t, changed, 4)
	assert.Len(t, dialect.ShortCallID(strings.Repeat("x", 65), 64), 29)
}

// Mistral takes ids of nine letters and digits.
func TestIDsOfCallsHaveTheLengthThatAServerTakes(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "D681PevKs", "000000000"} {
		assert.Equal(t, id, dialect.FixedCallID(id, 9))
	}
	changed := map[string]bool{}
	for _, id := range []string{"call_1", "call_2", "call_0123", "D681PevKsx", "D681PevK", "functions.f:0"} {
		assert.Regexp(t, `^[A-Za-z0-9]{9}$`, dialect.FixedCallID(id, 9))
		changed[dialect.FixedCallID(id, 9)] = true
	}
	assert.Len(t, changed, 6)
}
