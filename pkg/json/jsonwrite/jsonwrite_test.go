package jsonwrite_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

func TestADocumentIsWrittenInTheOrderOfTheCalls(t *testing.T) {
	t.Parallel()
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("z", "a\"b\\c\n\x01ü€😀\u2028</x>")
	w.Key("list")
	w.BeginList()
	w.Int(-7)
	w.BeginObject()
	w.EndObject()
	w.Bool(true)
	w.Null()
	w.Raw(`{"as": 1.0}`)
	w.EndList()
	w.OptText("absent", nil)
	w.TextUnlessEmpty("empty", "")
	w.OptFloat("f", new(0.1))
	jsonwrite.OptInt(&w, "n", new(int32(3)))
	w.TextList("texts", []string{"a", "b"})
	w.BeginObjectMember("object")
	w.BeginListMember("list")
	jsonwrite.RawList(&w, []string{"1", "[ ]"})
	w.TextObject()
	w.EndList()
	w.TextObjectMember("of", "a", "x", "b", "")
	w.TextOrNull("none", "")
	w.TextOrNull("some", "y")
	w.EndObject()
	w.EndObject()
	assert.Equal(t, `{"z":"a\"b\\c\n\u0001ü€😀`+"\u2028"+`</x>","list":[-7,{},true,null,{"as": 1.0}],"f":0.1,"n":3,"texts":["a","b"],`+
		`"object":{"list":[[1,[ ]],{}],"of":{"a":"x","b":""},"none":null,"some":"y"}}`, w.String())
	w.Reset()
	w.Int(1)
	assert.Equal(t, "1", w.String())
}

func TestNumbersReadBackTheSame(t *testing.T) {
	t.Parallel()
	for _, f := range []float64{0, 1, -1.5, 0.1, 1e21, 1e-7, math.MaxFloat64, math.SmallestNonzeroFloat64, 123456789.125} {
		var w jsonwrite.Writer
		w.Float(f)
		var got float64
		require.NoError(t, json.Unmarshal(w.Bytes(), &got))
		assert.InDelta(t, f, got, 0)
	}
	var w jsonwrite.Writer
	w.Float(math.NaN())
	assert.Equal(t, "null", w.String())
}

func FuzzAppendText(f *testing.F) {
	for _, seed := range []string{"", "plain text of some length", "a\"b", "ü\xff\xfe", strings.Repeat("x", 17) + "\n", "\u2028\x7f\x00", strings.Repeat("\"", 63) + "北京\xe5\x8c", strings.Repeat("\x01\xbf", 70)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got string
		if err := json.Unmarshal(jsonwrite.AppendText(nil, text), &got); err != nil {
			t.Fatal(err)
		}
		if want := string([]rune(text)); got != want { // each byte that is no UTF-8 is U+FFFD
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func BenchmarkAppendText(b *testing.B) {
	for name, text := range map[string]string{
		"ascii":   strings.Repeat("The quick brown fox jumps over the lazy dog. ", 9000),
		"code":    strings.Repeat("\tif err != nil {\n\t\treturn fmt.Errorf(\"read %q: %w\", name, err)\n\t}\n", 6000),
		"json":    strings.Repeat(`{"id":17,"name":"x","ok":true,"tags":["a","b"]},`, 8000),
		"unicode": strings.Repeat("Größere Übungen für ältere Öfen: 北京 東京. ", 8000),
	} {
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, 2*len(text))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				dst = jsonwrite.AppendText(dst[:0], text)
			}
		})
	}
}

func TestAListIsClosedHoweverItsLoopEnds(t *testing.T) {
	t.Parallel()
	var w jsonwrite.Writer
	w.BeginList()
	for i, n := range jsonwrite.List(&w, []int64{5, 6, 7}) {
		if i == 2 {
			break
		}
		w.Int(n)
	}
	for i, text := range jsonwrite.Objects(&w, []string{"a", "", "b", "c"}) {
		if i == 3 {
			break
		}
		w.TextUnlessEmpty("x", text)
	}
	for range jsonwrite.Objects(&w, []string(nil)) {
		w.Null()
	}
	w.EndList()
	assert.Equal(t, `[[5,6],[{"x":"a"},{},{"x":"b"},{}],[]]`, w.String())
}
