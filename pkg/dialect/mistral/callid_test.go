package mistral_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
)

func TestIDsOfCallsHaveNineLettersAndDigits(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "D681PevKs", "000000000"} {
		assert.Equal(t, id, mistral.CallID(id))
	}
	changed := map[string]bool{}
	for _, id := range []string{"call_1", "call_2", "D681PevKsx", "D681PevK", "functions.f:0"} {
		assert.Regexp(t, `^[A-Za-z0-9]{9}$`, mistral.CallID(id))
		assert.Equal(t, mistral.CallID(id), mistral.CallID(id))
		changed[mistral.CallID(id)] = true
	}
	assert.Len(t, changed, 5)
}
