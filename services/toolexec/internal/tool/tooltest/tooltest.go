// Package tooltest is the conformance suite for tools, and a scripted sandbox.
package tooltest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// Harness is a tool under test.
type Harness struct {
	Kind tool.Kind
	// Options are sets of options that the tool accepts, in addition to none.
	Options []string
	// Refused are sets of options that the tool must reject.
	Refused []string
	// Arguments are valid arguments; there is at least one.
	Arguments []string
	// Sandbox returns a sandbox in which each call with Arguments succeeds; nil for a tool that needs none.
	Sandbox func() *Sandbox
}

// Run checks the guarantees of every tool.
func Run(t *testing.T, h Harness) {
	t.Helper()
	t.Run("registers", h.registers)
	t.Run("refuses options", h.refusesOptions)
	t.Run("definition is stable", h.definitionIsStable)
	t.Run("has no foreign marks", h.descriptionIsNeutral)
	t.Run("calls succeed", h.callsSucceed)
	if h.Sandbox != nil {
		t.Run("commands repeat", h.commandsRepeat)
		t.Run("without a sandbox the run ends", h.needsSandbox)
		t.Run("ends with its context", h.endsWithContext)
	}
	if h.make(t, "{}").Definition().View != nil {
		t.Run("view takes any arguments", h.viewTakesAnything)
	}
}

func (h Harness) registers(t *testing.T) {
	var registry tool.Registry
	require.NoError(t, registry.Register(h.Kind))
	for _, options := range append([]string{"", "{}"}, h.Options...) {
		offers, err := registry.Offer("default", []*toolv1.ToolRef{{Name: h.Kind.Name, OptionsJson: options}})
		require.NoError(t, err, options)
		assert.Equal(t, h.Kind.Name, offers[0].Name())
		assert.Equal(t, string(h.Kind.Options), offers[0].Public.GetOptionsSchemaJson())
		for _, arguments := range h.Arguments {
			_, fault := offers[0].Check(json.RawMessage(arguments))
			assert.Nil(t, fault, "arguments of the harness must be valid")
		}
	}
}

func (h Harness) refusesOptions(t *testing.T) {
	var registry tool.Registry
	require.NoError(t, registry.Register(h.Kind))
	for _, options := range append([]string{`{"no_such_option": 1}`, `[]`, `{`}, h.Refused...) {
		_, err := registry.Offer("default", []*toolv1.ToolRef{{Name: h.Kind.Name, OptionsJson: options}})
		require.Error(t, err, options)
		if strings.Contains(options, "no_such_option") {
			require.ErrorContains(t, err, "no_such_option")
		}
	}
}

func (h Harness) definitionIsStable(t *testing.T) {
	for _, options := range append([]string{"{}"}, h.Options...) {
		made := h.make(t, options)
		first := made.Definition()
		assert.True(t, proto.Equal(first.Public, made.Definition().Public))
		assert.Equal(t, h.Sandbox != nil, first.Public.GetNeedsSandbox())
		assert.False(t, first.Public.GetCallerRuns())
	}
}

// descriptionIsNeutral: a text for the model must not reveal that the model is being watched.
func (h Harness) descriptionIsNeutral(t *testing.T) {
	for _, options := range append([]string{"{}"}, h.Options...) {
		info := h.make(t, options).Definition().Public.GetInfo()
		for _, word := range []string{"sandbox", "eval", "isolat", "benchmark", "container"} {
			assert.NotContains(t, strings.ToLower(info.GetDescription()+info.GetParametersJson()), word)
		}
	}
}

func (h Harness) callsSucceed(t *testing.T) {
	for _, options := range append([]string{"{}"}, h.Options...) {
		for _, arguments := range h.Arguments {
			result, err := h.make(t, options).Call(t.Context(), h.call(arguments, h.sandbox()))
			require.NoError(t, err, "%s %s", options, arguments)
			require.NotNil(t, result)
		}
	}
}

// commandsRepeat: a retried call must issue the same commands, because it then gets their stored results.
func (h Harness) commandsRepeat(t *testing.T) {
	for _, arguments := range h.Arguments {
		made := h.make(t, "{}")
		first, second := h.sandbox(), h.sandbox()
		for _, sandbox := range []*Sandbox{first, second} {
			_, err := made.Call(t.Context(), h.call(arguments, sandbox))
			require.NoError(t, err)
		}
		require.NotEmpty(t, first.Specs())
		require.Len(t, second.Specs(), len(first.Specs()))
		for i, spec := range first.Specs() {
			assert.True(t, proto.Equal(spec, second.Specs()[i]))
		}
	}
}

func (h Harness) needsSandbox(t *testing.T) {
	_, err := h.make(t, "{}").Call(t.Context(), h.call(h.Arguments[0], nil))
	require.Error(t, err)
	_, told := tool.Explain(h.Kind.Name, err)
	assert.False(t, told, "the model cannot mend it")
}

func (h Harness) endsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.make(t, "{}").Call(ctx, h.call(h.Arguments[0], h.sandbox()))
	require.ErrorIs(t, err, context.Canceled)
}

func (h Harness) viewTakesAnything(t *testing.T) {
	view := h.make(t, "{}").Definition().View
	for _, arguments := range append([]string{"", "{}", "[]", "null", `{"command": 5, "code": null}`, "{"}, h.Arguments...) {
		if content := view(json.RawMessage(arguments)); content != nil {
			assert.NotZero(t, content.GetFormat(), arguments)
		}
	}
}

func (h Harness) make(t *testing.T, options string) tool.Tool {
	t.Helper()
	made, err := h.Kind.New(json.RawMessage(options))
	require.NoError(t, err)
	return made
}

func (h Harness) sandbox() *Sandbox {
	if h.Sandbox == nil {
		return nil
	}
	return h.Sandbox()
}

func (h Harness) call(arguments string, sandbox *Sandbox) *tool.Call {
	return NewCall(arguments, sandbox)
}

// NewCall returns a call with checked arguments. If sandbox is nil, the run has no sandbox.
func NewCall(arguments string, sandbox *Sandbox) *tool.Call {
	return &tool.Call{
		Progress:  func(string) {},
		Arguments: json.RawMessage(arguments),
		Sandbox: func(environment string) (tool.Sandbox, error) {
			if sandbox == nil {
				return nil, errNoSandbox
			}
			sandbox.opened(environment)
			return sandbox, nil
		},
		Store: tool.NewStore(nil, nil),
	}
}
