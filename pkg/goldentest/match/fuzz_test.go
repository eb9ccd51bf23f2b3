package match

import (
	"strings"
	"testing"
)

// Whatever is recorded and whatever is answered, a comparison ends without a panic, a text without markers matches
// itself alone, and a text made from the parts matches.
func FuzzText(f *testing.F) {
	for _, seed := range [][2]string{
		{"<prose:a {\"n\": 1}><prose>x<id1>", "1 2x3"},
		{"a <prose:b {\"raw\": \"{\\\"x\\\": 1}\"}> c", "a {\"x\": 1} c"},
		{"<prose:limit {\"limit\": \"1234567\"}>", "limit 1,234,567"},
		{"<id1>-<id1>", "a-a"},
		{"<prose:x {\"a\": [1, {\"b\": null}]}>", "1"},
		{"<new:tool>", "x"},
		{"<prose", "<prose"},
		{"\xff<prose>\xff", "\xff\xff\xff"},
		{"<prose:n {\"n\": 1e999999999}>", "1e999999999"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, want, got string) {
		found := Equal(want, got)
		Equal(want, got, AnyLines())
		Equal(map[string]any{"$long": map[string]any{"head": want, "tail": want}}, got)
		parts := parse(want)
		if !strings.ContainsAny(want, "<") && (len(found) == 0) != (want == got) {
			t.Errorf("%q against %q: %v", want, got, found)
		}
		var literal strings.Builder
		for _, p := range parts {
			if p.kind == literalPart {
				literal.WriteString(p.literal)
			}
		}
		if literal.Len() > len(got) && len(Equal(want, got)) == 0 && parts != nil && !isWholeMarker(want) {
			t.Errorf("%q is longer than %q, which matches", want, got)
		}
	})
}

func isWholeMarker(text string) bool {
	_, is := (&comparison{bound: bindings{}}).wholeMarker(text, "")
	return is
}

// FuzzValues compares any two JSON values.
func FuzzValues(f *testing.F) {
	f.Add(`{"a":[1,"<id1>",{"$long":{"runs":[["x",3]]}}]}`, `{"a":[1.0,"b","xxx"]}`)
	f.Add(`{"$long":{"runs":[["x",99999999999]]}}`, `"x"`)
	f.Add(`{"message_pool":{"m1":{"id":"m1"}},"messages":["m1"]}`, `{"messages":[{"id":"x"}]}`)
	f.Add(`1e999999999`, `1e999999998`)
	f.Fuzz(func(t *testing.T, wantText, gotText string) {
		want, err := normalise(rawJSON(wantText))
		if err != nil {
			return
		}
		got, err := normalise(rawJSON(gotText))
		if err != nil {
			return
		}
		if resolved, err := Messages(want); err == nil {
			_ = Equal(resolved, got, EmptyAsAbsent("*"), AnyOrder("*")).String()
		}
		if !strings.ContainsAny(wantText, "<$") && !strings.Contains(wantText, `\u`) {
			if found := Equal(want, want); len(found) > 0 {
				t.Errorf("a value differs from itself: %v", found)
			}
		}
	})
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }
