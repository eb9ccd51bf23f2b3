package dialect_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// A word is that of a member in its own place: the arguments of a call, or what a client wrote, may have members of any
// name.
func TestAWordIsFoundInItsPlaceAlone(t *testing.T) {
	t.Parallel()
	reason := dialect.NewWordPath("choices", "finish_reason")
	long := strings.Repeat("x", 20<<10)
	for doc, want := range map[string]string{
		`{"choices":[{"finish_reason":"stop"}]}`:                                                "stop",
		` { "choices" : [ { "a" : [1,{}] , "finish_reason" : "stop" } ] } `:                     "stop",
		`{"choices":[{"finish_reason":null},{"finish_reason":"length"}]}`:                       "length",
		`{"choices":[{"message":{"x":{"finish_reason":"no"}},"finish_reason":"stop"}]}`:         "stop",
		`{"finish_reason":"no","choices":[{"message":"` + long + `","finish_reason":"stop"}]}`:  "stop",
		`{"choices":[{"message":"` + long + `","finish_reason":"stop"}],"more":"` + long + `"}`: "stop",
		`{"choices":[{"message":{"x":{"finish_reason":"no"}},"finish_reason":null}]}`:           "",
		`{"finish_reason":"no","choices":[]}`:                                                   "",
		`{"metadata":{"choices":[{"finish_reason":"no"}]},"choices":[{}]}`:                      "",
		`{"choices":[["finish_reason","no"]]}`:                                                  "",
		`{"choices":[{"content":"\"finish_reason\":\"no\""}]}`:                                  "",
		`{"choices":[{"finish_reason":7}]}`:                                                     "",
		`{"choices":[{"finish_reason":"stop"}`:                                                  "",
		`[{"choices":[{"finish_reason":"no"}]}]`:                                                "",
		`"finish_reason":"no"`:                                                                  "",
		`{"choices":{"finish_reason":"stop"}}`:                                                  "stop",
	} {
		word, ok := reason.Of([]byte(doc))
		assert.Equal(t, want, word, doc)
		assert.Equal(t, want != "", ok, doc)
	}
}
