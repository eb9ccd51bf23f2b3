package agent_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/multichoice"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/prompt"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
)

// The page about task files names every solver and agent, and their parameters.
func TestThePageNamesAllParameters(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/task-file.md")
	require.NoError(t, err)
	for _, d := range append(prompt.Definitions(), generate.Definition(), multichoice.Definition(), react.Definition()) {
		assert.Contains(t, string(page), "`"+d.Name+"`")
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		require.NoError(t, json.Unmarshal([]byte(d.Parameters), &schema), d.Name)
		require.NotEmpty(t, schema.Properties, d.Name)
		for parameter := range schema.Properties {
			assert.Contains(t, string(page), "`"+parameter+"`", "%s.%s", d.Name, parameter)
		}
	}
}
