package template_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/template"
)

func TestFill(t *testing.T) {
	t.Parallel()
	metadata := template.Object(`{"name": "Ada", "n": 7, "deep": {"er": [1, "x"]}, "dotted.key": true, "none": null}`)
	values := template.First(template.Map(map[string]string{"prompt": "say {name}", "name": "first wins"}), metadata, template.Under("metadata", metadata))
	for text, want := range map[string]string{
		"{prompt}":                               "say {name}",
		"{name} and {metadata.name}":             "first wins and Ada",
		"{n}{deep.er}{deep}":                     `7[1, "x"]{"er": [1, "x"]}`,
		"{dotted.key} {none}":                    "true null",
		"{prompt.no}{n.no}{deep.er.no}{none.no}": "{prompt.no}{n.no}{deep.er.no}{none.no}",
		"{unknown} {deep.no} {} {1} { n }":       "{unknown} {deep.no} {} {1} { n }",
		"def f(): return {'a': {'n': {n}}}":      "def f(): return {'a': {'n': 7}}",
	} {
		assert.Equal(t, want, filled(t, template.NewRoom().Program, text, values), text)
	}
	assert.Equal(t, "{n} is 7, {7}", filled(t, template.NewRoom().Prompt, "{{n}} is {n}, {{{n}}}", values))
	assert.Equal(t, []string{"metadata.z", "metadata.deep.no"}, template.Missing("{metadata.z}{n}{z}{metadata.deep.no}{metadata.n}{metadata.z}", "metadata.", values))
	assert.Equal(t, "{{n}}", filled(t, template.NewRoom().Program, "{{n}}", template.Map(nil)))
}

// A placeholder without a value is warned of with the name that was probably meant; doubled braces are none.
func TestAPlaceholderWithoutAValueIsWarnedOf(t *testing.T) {
	t.Parallel()
	values := template.First(template.Map(map[string]string{"name": "Ada"}), template.Under("metadata", template.Map(map[string]string{"lang": "go"})))
	assert.Equal(t, []string{"nmae", "no.such"}, template.Unfilled("{nmae} {{x}} {name} {metadata.lang} {no.such} {nmae} {1}", values))
	assert.Equal(t, "it has no value for {nmae}, {x}, which stays in the text if nothing sets it before; did you mean name? known: name, lang",
		template.Warning("it", "{nmae} {x}", values, []string{"name", "lang"}))
	assert.Empty(t, template.Warning("it", "{name} {{x}}", values, []string{"name"}))
	many := template.Warning("it", "{x}", values, slices.Repeat([]string{"abcdef"}, 25))
	assert.True(t, strings.HasSuffix(many, "abcdef, and 5 more"), many)
	assert.Equal(t, []string{"a", "b"}, template.Names(`{"b": 1, "a": {}}`))
	assert.Empty(t, template.Names(`[1]`))
}

func filled(t *testing.T, fill func(string, template.Values) (string, error), text string, values template.Values) string {
	t.Helper()
	out, err := fill(text, values)
	require.NoError(t, err, text)
	return out
}

// A text and a value each within its bound may together be far too much.
func TestWhatComesOutIsBounded(t *testing.T) {
	t.Parallel()
	values := template.Map(map[string]string{"prompt": strings.Repeat("x", 40<<10), "none": ""})
	for name, fill := range map[string]func(*template.Room) (string, error){
		"prompt":  func(r *template.Room) (string, error) { return r.Prompt(strings.Repeat("{prompt}", 12_500), values) },
		"program": func(r *template.Room) (string, error) { return r.Program(strings.Repeat("{prompt}", 12_500), values) },
		"plain": func(r *template.Room) (string, error) {
			return r.Program(strings.Repeat("x", bound.TemplateBytes+1), values)
		},
	} {
		_, err := fill(template.NewRoom())
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%s: %v", name, err)
		assert.ErrorContains(t, err, "more than 16777216 bytes", name)
	}
	room := template.NewRoom() // is shared by texts
	assert.Len(t, filled(t, room.Program, strings.Repeat("x", bound.TemplateBytes), values), bound.TemplateBytes)
	assert.Empty(t, filled(t, room.Program, strings.Repeat("{none}", 100), values))
	_, err := room.Program("x", values)
	assert.Error(t, err)
}

// The documents that values come from are parsed once, not for each placeholder.
func TestADocumentIsParsedOnce(t *testing.T) {
	const placeholders = 2000
	document := `{"deep": {"er": "v", "big": "` + strings.Repeat("x", 1<<20) + `"}}`
	metadata := template.Object(document)
	values := template.First(metadata, template.Under("metadata", metadata))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out := filled(t, template.NewRoom().Prompt, strings.Repeat("{nosuch}{deep.er}{deep.no}{metadata.deep.er}", placeholders/4), values)
	missing := template.Missing(strings.Repeat("{metadata.no}", placeholders), "metadata.", values)
	runtime.ReadMemStats(&after)
	assert.Equal(t, strings.Repeat("{nosuch}v{deep.no}v", placeholders/4), out)
	assert.Equal(t, []string{"metadata.no"}, missing)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "bytes in all, where each parse takes over one MiB")
}
