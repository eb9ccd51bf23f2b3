package provider_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// An option with the value that it has anyway changes nothing, so that a model without it can be asked.
func TestAnEmptyListOfStopSequencesIsNoOption(t *testing.T) {
	t.Parallel()
	options := []string{"stop_seqs"}
	assert.Empty(t, provider.OptionsSet(&modelv1.GenerateConfig{StopSeqs: &modelv1.StringList{}}, options))
	assert.Equal(t, options, provider.OptionsSet(&modelv1.GenerateConfig{StopSeqs: &modelv1.StringList{Values: []string{"a"}}}, options))
}
