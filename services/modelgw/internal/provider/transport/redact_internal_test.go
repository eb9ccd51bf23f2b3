package transport

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The first member with a model's words is where a search for each of them finds the earliest.
func FuzzFirstAnswer(f *testing.F) {
	for _, head := range []string{`data: {"id":"c","choices":[{"delta":{}}]}`, `{"error":{"message":"content"}}`, `"content_bloc`, `{"content_block":1}`, `""candidates"`, ``, `"`} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		want := len(head)
		for _, member := range answerMembers {
			if at := bytes.Index(head, member); at >= 0 {
				want = min(want, at)
			}
		}
		assert.Equal(t, want, firstAnswer(head))
	})
}
