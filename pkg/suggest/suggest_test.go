package suggest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/suggest"
)

func TestTheNearestNameIsMeant(t *testing.T) {
	t.Parallel()
	known := []string{"mean", "median", "mode", "f1", "accuracy"}
	for written, want := range map[string]string{
		"acuracy": "accuracy", "meen": "mean", "f2": "f1", "medan": "mean", "average": "", "xy": "", "": "", "mean": "",
	} {
		assert.Equal(t, want, suggest.Name(written, known), written)
	}
	assert.Equal(t, "did you mean mode? ", suggest.Question("moed", known))
	assert.Empty(t, suggest.Question("average", known))
}

func TestAListOfKnownNamesIsNeverEmpty(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "known: a, b", suggest.Known([]string{"a", "b"}))
	assert.Equal(t, "there are none", suggest.Known(nil))
}
