package history_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/history"
)

func TestACallIsRenderedAsOneLineOfLessThan80Characters(t *testing.T) {
	t.Parallel()
	fits, long := strings.Repeat("é", 70), strings.Repeat("é", 71)
	for arguments, want := range map[string]string{
		`{}`:                            "add()",
		`{"x": 1, "y": "it's"}`:         "add(x=1, y='it's')",
		`{"t": "a\n\tb \\ \"c\""}`:      "add(t='a\n\tb \\ \"c\"')",
		`{"t": "` + fits + `"}`:         "add(t='" + fits + "')",
		`{"t": "` + long + `"}`:         "add(\n    t='" + long + "'\n)",
		`{"a": 1, "t": "` + long + `"}`: "add(\n    a=1,\n    t='" + long + "'\n)",
		`{"t": "a\n\nb` + long + `"}`:   "add(\n    t='a\n\n    b" + long + "'\n)",
	} {
		assert.Equal(t, want, history.Render(chat.Call("c1", "add", arguments)), arguments)
	}
}
