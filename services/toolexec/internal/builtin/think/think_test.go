package think_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/think"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool/tooltest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, tooltest.Harness{
		Kind:      think.Kind(),
		Options:   []string{`{"description": "Think.", "thought_description": "What you \"think\"."}`},
		Refused:   []string{`{"description": ""}`, `{"thought_description": 5}`},
		Arguments: []string{`{"thought": "hm"}`, `{"thought": ""}`},
	})
}

func TestDescriptionsAreOptions(t *testing.T) {
	t.Parallel()
	made, err := think.Kind().New(json.RawMessage(`{"description": "Think.", "thought_description": "What you \"think\"."}`))
	require.NoError(t, err)
	info := made.Definition().Public.GetInfo()
	assert.Equal(t, "Think.", info.GetDescription())
	assert.JSONEq(t, `{"type": "object", "properties": {"thought": {"type": "string", "description": "What you \"think\"."}}, "required": ["thought"], "additionalProperties": false}`, info.GetParametersJson())
}

func TestView(t *testing.T) {
	t.Parallel()
	made, err := think.Kind().New(json.RawMessage(`{}`))
	require.NoError(t, err)
	view := made.Definition().View
	for arguments, want := range map[string]string{`{"thought": " a\nb "}`: " a\nb ", `{"thought": ""}`: "", `{}`: ""} {
		content := view(json.RawMessage(arguments))
		require.NotNil(t, content, arguments)
		assert.Equal(t, want, content.GetContent())
		assert.Empty(t, content.GetTitle())
	}
	assert.Nil(t, view(json.RawMessage(`{"thought": 5}`)))
}
