package template_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/template"
)

func TestFill(t *testing.T) {
	t.Parallel()
	metadata := template.Object(`{"name": "Ada", "n": 7, "deep": {"er": [1, "x"]}, "dotted.key": true, "none": null}`)
	values := template.First(template.Map(map[string]string{"prompt": "say {name}", "name": "first wins"}), metadata, template.Under("metadata", metadata))
	for text, want := range map[string]string{
		"{prompt}":                          "say {name}",
		"{name} and {metadata.name}":        "first wins and Ada",
		"{n}{deep.er}{deep}":                `7[1, "x"]{"er": [1, "x"]}`,
		"{dotted.key} {none}":               "true null",
		"{unknown} {deep.no} {} {1} { n }":  "{unknown} {deep.no} {} {1} { n }",
		"def f(): return {'a': {'n': {n}}}": "def f(): return {'a': {'n': 7}}",
	} {
		assert.Equal(t, want, template.Program(text, values), text)
	}
	assert.Equal(t, "{n} is 7, {7}", template.Prompt("{{n}} is {n}, {{{n}}}", values))
	assert.Equal(t, []string{"metadata.z", "metadata.deep.no"}, template.Missing("{metadata.z}{n}{z}{metadata.deep.no}{metadata.n}{metadata.z}", "metadata.", values))
	assert.Equal(t, "{{n}}", template.Program("{{n}}", template.Map(nil)))
}
