package openai_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
)

// piece is a piece of a call of the function f.
func piece(index int, id, name, arguments string) *openai.Call {
	p := &openai.Call{Index: &index, ID: id}
	p.Function.Name, p.Function.Arguments = name, dialect.Arguments(arguments)
	return p
}

// Some servers number all calls 0.
func TestAnotherIDAndNameUnderOneIndexIsAnotherCall(t *testing.T) {
	t.Parallel()
	var calls openai.Calls
	var places []int32
	for _, p := range []*openai.Call{piece(0, "a", "f", "{"), piece(0, "a", "f", "}"), piece(0, "b", "f", "["), piece(0, "", "", "]"), piece(1, "c", "g", "1"), piece(0, "b", "", "2")} {
		delta, err := calls.Add(p)
		require.NoError(t, err)
		places = append(places, delta.GetIndex())
	}
	assert.Equal(t, []int32{0, 0, 1, 1, 2, 1}, places)
	var got []string
	for _, c := range calls.All() {
		got = append(got, c.ID+c.Function.Name+string(c.Function.Arguments))
	}
	assert.Equal(t, []string{"af{}", "bf[]2", "cg1"}, got)
}

// A client sends a result by the id of its call, so that each call has one, the same in its pieces as at the end.
func TestACallWithoutAnIDGetsOne(t *testing.T) {
	t.Parallel()
	var calls openai.Calls
	first, err := calls.Add(piece(0, "", "f", "{}"))
	require.NoError(t, err)
	second, err := calls.Add(piece(1, "", "f", "{}"))
	require.NoError(t, err)
	assert.NotEmpty(t, first.GetId())
	assert.NotEqual(t, first.GetId(), second.GetId())
	all := calls.All()
	assert.Equal(t, []string{first.GetId(), second.GetId()}, []string{all[0].ID, all[1].ID})
	read := openai.AnsweredCalls([]openai.Call{*piece(0, "", "f", "{}")}, nil)
	assert.NotEmpty(t, read[0].GetId())
}
