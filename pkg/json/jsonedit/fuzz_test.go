package jsonedit_test

import (
	"encoding/json"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
)

// Of what is JSON, an edit leaves JSON.
func FuzzEdits(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"no" , {"a" : null}, "x"],"b":2}`, "{\n\"b\":1, \"\\u0061\":[\n\"no\"\n]}", `{"a":"a:\"b","a":2}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		if !json.Valid(document) {
			return
		}
		shorter := func(value []byte) []byte {
			switch value[0] {
			case '"':
				return nil
			case '{':
				return jsonedit.Without(value, "a")
			default:
				return value
			}
		}
		list := func(value []byte) []byte { return jsonedit.List(value, shorter) }
		for _, got := range [][]byte{jsonedit.Without(document, "a"), list(document), jsonedit.Member(document, "a", list)} {
			if !json.Valid(got) {
				t.Fatalf("%q becomes %q", document, got)
			}
		}
	})
}
