package toolname_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/toolname"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

func TestEachToolHasANameOfItsOwnAndKeepsTheClients(t *testing.T) {
	t.Parallel()
	tools := []toolname.Name{
		{Namespace: "a", Name: "f"}, {Name: "f"}, {Namespace: "a", Name: "g"}, {Namespace: "b", Name: "g"}, {Name: "a__f"}, {Name: "c", Custom: true},
	}
	names := toolname.Canonical(tools)
	var offered []*toolv1.ToolInfo
	for i, want := range []string{"a__f_2", "f", "g", "b__g", "a__f", "c"} {
		assert.Equal(t, want, names[tools[i]])
		offered = append(offered, &toolv1.ToolInfo{Name: want, OptionsJson: tools[i].Options(want)})
	}
	assert.Empty(t, offered[1].GetOptionsJson(), "its name says all")
	remembered := toolname.Of(offered)
	for i, tool := range offered {
		assert.Equal(t, tools[i], remembered.Of(tool.GetName()))
	}
	assert.Equal(t, toolname.Name{Name: "unknown"}, remembered.Of("unknown"))
}

func TestACallOfACustomToolIsItsText(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a \"b\"", toolname.Text(chat.Call("c", "f", toolname.Arguments("a \"b\""))))
	assert.JSONEq(t, `{"x":1}`, toolname.Text(chat.Call("c", "f", `{"x":1}`)), "what has another form stays")
}
