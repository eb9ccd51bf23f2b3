package computer_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/computer"
)

func TestAnActionIsTheArgumentsOfACall(t *testing.T) {
	t.Parallel()
	click := computer.Action{Action: "left_click", Place: []int{3, 4}}
	assert.JSONEq(t, `{"action":"left_click","coordinate":[3,4]}`, click.Arguments())
	assert.Equal(t, click, computer.Asked(chat.Call("c", "computer", click.Arguments())))
	assert.Empty(t, computer.Asked(chat.Call("c", "computer", "no object")))
}

func TestACallOfTheToolIsACallOfItsAction(t *testing.T) {
	t.Parallel()
	arguments := computer.WithAction("click", `{"x":1.0}`)
	assert.JSONEq(t, `{"action":"click","x":1.0}`, arguments)
	action, input, ok := computer.ActionOf(chat.Call("c", "computer", arguments))
	assert.True(t, ok)
	assert.Equal(t, "click", action)
	assert.Equal(t, `{"x":1.0}`, input)
	assert.Equal(t, "no object", computer.WithAction("click", "no object"))
	for _, arguments := range []string{`{}`, `{"action":""}`, `{"action":1}`, `[]`} {
		_, _, ok := computer.ActionOf(chat.Call("c", "computer", arguments))
		assert.False(t, ok, arguments)
	}
}
