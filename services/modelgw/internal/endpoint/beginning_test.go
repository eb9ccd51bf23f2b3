package endpoint

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheBeginningIsTheSameInAllTurnsAndNotInOtherConversations(t *testing.T) {
	t.Parallel()
	for name, form := range map[string][3]string{
		"OpenAI":    {`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"`, `"}`, `,{"role":"assistant","content":"a"},{"role":"user","content":"b"}`},
		"Anthropic": {`{"max_tokens":5,"system":"a \"user\" speaks","messages":[{"content":[{"type":"text","text":"`, `"}],"role":"user"}`, `,{"role":"assistant","content":[]}`},
		"Gemini":    {`{"contents":[{"parts":[{"text":"`, `"}],"role":"user"}`, `,{"role":"model","parts":[]}`},
		"Responses": {`{"input":[{"type":"message","role":"user","content":"`, `"}`, `,{"type":"reasoning"},{"role":"user","content":"c"}`},
	} {
		first := func(question string) []byte {
			return beginning([]byte(form[0] + question + form[1] + `],"stream":true}`))
		}
		later := func(question string) []byte {
			return beginning([]byte(form[0] + question + form[1] + form[2] + `],"stream":false}`))
		}
		assert.Equal(t, string(first("q {} one")), string(later("q {} one")), name)
		assert.NotEqual(t, string(first("q {} one")), string(first("q {} two")), name)
	}
	assert.Equal(t, `"a text alone"`, string(beginning([]byte(`{"input":"a text alone"}`))))
}

// Whatever a body is, its beginning is a part of it.
func FuzzBeginning(f *testing.F) {
	f.Add([]byte(`{"messages":[{"content":"}\\\"","role":"user"}]}`))
	f.Add([]byte(`{"input":"user","contents":["user"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !bytes.Contains(body, beginning(body)) {
			t.Fatalf("the beginning of %q is no part of it", body)
		}
	})
}
