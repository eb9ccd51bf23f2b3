package jsonscan_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// long is more than Edges looks at from both ends together.
var long = strings.Repeat(`text \"model\":\"no\" \\`, 1000)

// edges returns the wanted values that Edges finds as text; empty where it finds none.
func edges(doc string) []string {
	found := make([]jsonscan.Span, len(names))
	jsonscan.Edges([]byte(doc), names, found)
	values := make([]string, len(names))
	for i, span := range found {
		values[i] = string(span.Of([]byte(doc)))
	}
	return values
}

func TestMembersAreFoundAtEitherEndOfALongObject(t *testing.T) {
	t.Parallel()
	text := `"` + long + `"`
	for name, c := range map[string]struct {
		doc  string
		want []string
	}{
		"short":                            {`{"model":"m","x":1}`, []string{`"m"`, "", ""}},
		"short and broken":                 {`{"model":"m",`, []string{"", "", ""}},
		"at the beginning":                 {`{"model": "m", "x":` + text + `}`, []string{`"m"`, "", ""}},
		"at the end":                       {`{"x":` + text + `, "stream" : true, "max_tokens":12}` + "\n", []string{"", "true", "12"}},
		"at both":                          {`{"model":"m","x":[{"y":` + text + `}],"stream":{"a":[]}}`, []string{`"m"`, `{"a":[]}`, ""}},
		"nested at the end":                {`{"x":{"y":` + text + `,"model":"no"},"z":[{"stream":1}]}`, []string{"", "", ""}},
		"a value and no name":              {`{"x":` + text + `,"y":"model","z":["stream"]}`, []string{"", "", ""}},
		"in a text at the end":             {`{"x":` + text + `,"y":"\"model\":1}"}`, []string{"", "", ""}},
		"one of its own and a nested one":  {`{"x":` + text + `,"model":"own","y":{"model":"no"}}`, []string{`"own"`, "", ""}},
		"far from both ends":               {`{"x":` + text + `,"model":"m","y":` + text + `}`, []string{"", "", ""}},
		"a number that the cut would part": {`{"x":"` + strings.Repeat("a", 4<<10-30) + `","max_tokens":` + strings.Repeat("1", 50) + `,"y":` + text + `}`, []string{"", "", ""}},
	} {
		assert.Equal(t, c.want, edges(c.doc), name)
	}
}

// Of a long document Edges finds what Object does, or nothing.
func FuzzEdges(f *testing.F) {
	for _, seed := range []string{`{"model":"a","stream":true,"max_tokens":12}`, `{"x":{"model":1},"model":[{"stream":0}]}`, `{"x":"\"model\":2","y":["model",{"model":""}]}`} {
		for at := range uint8(4) {
			f.Add([]byte(seed), at)
		}
	}
	f.Fuzz(func(t *testing.T, short []byte, at uint8) {
		keys, values, ok := members(short)
		if !ok {
			return
		}
		list := make([]string, 0, len(keys)+1)
		for i, value := range values {
			key, err := json.Marshal(keys[i])
			require.NoError(t, err)
			list = append(list, string(key)+":"+string(value))
		}
		list = slices.Insert(list, int(at)%(len(keys)+1), `"long": "`+long+`"`)
		whole := []byte("{" + strings.Join(list, ",") + "}")
		want := make([]jsonscan.Span, len(names))
		if jsonscan.Object(whole, names, want) != nil {
			return // a wanted member occurs twice
		}
		got := make([]jsonscan.Span, len(names))
		jsonscan.Edges(whole, names, got)
		for i := range got {
			if got[i].Found() && got[i] != want[i] {
				t.Fatalf("%q: %s is at %v, not at %v", whole, names[i], got[i], want[i])
			}
		}
	})
}
