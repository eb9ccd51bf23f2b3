package jsonread_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread/jsonreadtest"
)

// wire has a field of each type that requests and answers on the wire have.
type wire struct {
	Text     string             `json:"text"`
	Bool     bool               `json:"bool"`
	Int      int64              `json:"int"`
	Small    int8               `json:"small"`
	Float    float64            `json:"float"`
	Optional *string            `json:"optional"`
	Number   *int32             `json:"number"`
	List     []wire             `json:"list"`
	Texts    []string           `json:"texts"`
	Raws     []json.RawMessage  `json:"raws"`
	Nested   *wire              `json:"nested"`
	Inner    struct{ A, B int } `json:"inner"`
	Map      map[string]float64 `json:"map"`
	Maps     map[string]wire    `json:"maps"`
	Raw      json.RawMessage    `json:"raw"`
	Part     jsonread.Raw       `json:"part"`
	Mixed    jsonread.TextOrRaw `json:"mixed,omitempty"`
	Joined   joined             `json:"joined"`
	Failure  *failing           `json:"failure"`
	Untagged string
	Left     any         `json:"left"`
	Exact    json.Number `json:"exact"`
	Skipped  string      `json:"-"`

	own string //nolint:unused // encoding/json passes over it too.
}

// joined is a text, or several.
type joined string

func (j *joined) TakeText(text string) { *j = joined(text) }

func (j *joined) UnmarshalJSON(raw []byte) error {
	var texts []string
	if json.Unmarshal(raw, &texts) == nil {
		*j = joined(strings.Join(texts, " "))
		return nil
	}
	return json.Unmarshal(raw, (*string)(j))
}

// failing takes numbers only.
type failing float64

func (f *failing) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, (*float64)(f)) }

var documents = []string{
	`{"text":"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\ud83d\u0041\udc00\u0000é😀","bool":true,"int":-12,"small":127,"float":1.5e-3,"optional":"x","number":7}`,
	`{"text":null,"bool":null,"int":null,"float":null,"optional":null,"number":null,"list":null,"nested":null,"inner":null,"map":null,"raw":null,"part":null,"mixed":null,"joined":null,"failure":null}`,
	` { "list" : [ {"text":"a"} , {} , {"list":[{"nested":{"text":"b"}}]}, null ] , "texts":["a","b",null,"c","d","e"], "raws":[1, {"a": [true]}, "x"] } `,
	`{"inner":{"A":1,"B":2,"C":{"x":[1,2,{"y":"\u0041"}]}},"map":{"a":1,"b":2e2,"a":3},"maps":{"x":{"text":"y"}},"raw":{"a" : 1.0},"part":{"b" : 2},"mixed":"m","joined":["a","b"]}`,
	`{"mixed":[{"a":"b"}],"joined":"text","failure":1.5,"Untagged":"u","left":{"a":[1]},"exact":1e400,"-":"x"}`,
	`{"Text":"other letters"}`, `{"te\u0078t":"escaped name"}`, `{"text":"a","text":"b"}`, `{"nested":{"text":"a"},"nested":{"bool":true}}`, `{"untagged":"u"}`, `{"\u212aey":1}`,
	`{"text":1}`, `{"list":[{"text":{}}]}`, `{"int":1.5}`, `{"small":128}`, `{"float":1e999}`, `{"map":{"a":"b"}}`, `{"inner":[]}`, `{"failure":"x"}`, `{"joined":5}`, `{"list":{}}`,
	`{"text":"` + "\xff\xfea" + `"}`, `{"text":"` + strings.Repeat("ä", 10) + "\xe4" + `"}`, "{\"text\":\"a\tb\"}", "{\"text\":\"ä\tb\"}", "{\"other\":\"a\x00\"}", `{"raw":"` + "\xff" + `"}`,
	``, ` `, `null`, `nul`, `{`, `{"text"`, `{"text":`, `{"text":"a`, `{"text":"a"`, `{"text":"a",}`, `{"text":"a"}x`, `{,}`, `[]`, `"a"`, `{"x":[1,]}`, `{"x":01}`, `{"x":-}`, `{"x":1.}`,
	`{"x":1e}`, `{"x":.5}`, `{"x":+1}`, `{"x":tru}`, `{"x":"\x"}`, `{"x":"\u12g4"}`, `{"x":"\u12`, `{"x":"\`, `{"text":"\u12g4"}`, `{"text":"a\`, "\uFEFF{}", `{"x":` + strings.Repeat("[", 20_000), "\x00", "{\"text\"\x00:1}",
	`{"x":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}`, `{"x":` + strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000) + `}`,
	strings.Repeat(`{"nested":`, 600) + "{}" + strings.Repeat("}", 600),
}

func TestDocumentsReadAsEncodingJSONReadsThem(t *testing.T) {
	t.Parallel()
	for _, doc := range documents {
		jsonreadtest.Alike[wire](t, []byte(doc))
		jsonreadtest.Alike[[]wire](t, []byte("["+doc+"]"))
		jsonreadtest.Alike[map[string]json.RawMessage](t, []byte(doc))
		jsonreadtest.Alike[*string](t, []byte(doc))
		jsonreadtest.Alike[any](t, []byte(doc))
	}
	var nothing *wire
	require.EqualError(t, jsonread.Unmarshal([]byte("{}"), nothing), json.Unmarshal([]byte("{}"), nothing).Error())
}

// An escape or a character is read at any position of a text.
func TestTextsAreReadWhateverTheirLength(t *testing.T) {
	t.Parallel()
	for before := range 140 {
		for _, what := range []string{`\n`, `\u00e9`, `\ud83d\ude00`, "é", "😀", "\xff", strings.Repeat(`\"`, 70), strings.Repeat("é", 70), strings.Repeat("\xff", 200), `\ud800` + strings.Repeat("\xff", 200)} {
			jsonreadtest.Alike[wire](t, []byte(`{"text":"`+strings.Repeat("a", before)+what+`","raw":"`+strings.Repeat("a", before)+what+`"}`))
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, doc := range documents {
		if len(doc) < 1000 {
			f.Add([]byte(doc))
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		jsonreadtest.Alike[wire](t, doc)
		jsonreadtest.Alike[[]json.RawMessage](t, doc)
	})
}

// A copy would mean that the document was delegated to encoding/json.
func TestWhatIsCommonIsReadHere(t *testing.T) {
	t.Parallel()
	doc := []byte(`{"part": {"a":1}, "mixed": [2], "raw": [3], "text":"\u00e9", "bool":false, "int":1, "float":2.5, "number":3, "list":[{"nested":{"inner":{"A":1}}}, null], "texts":["a"],
		"map":{"a":1}, "joined":"a", "failure":1, "other":[-1.5e+3, {"x":"\"\ud83d\ude00"}, true, false, null]}`)
	var read wire
	require.NoError(t, jsonread.Unmarshal(doc, &read))
	assert.Same(t, &doc[9], &read.Part[0])
	assert.Same(t, &doc[27], &read.Mixed.Raw[0])
	assert.NotSame(t, &doc[39], &read.Raw[0])
	_ = append(read.Part, 'x')
	assert.Equal(t, byte(','), doc[16], "what is appended goes elsewhere")
}

func BenchmarkUnmarshal(b *testing.B) {
	for name, piece := range map[string]string{
		"prose":   "The quick brown fox jumps over the lazy dog. ",
		"code":    "\tif err != nil {\n\t\treturn fmt.Errorf(\"read %q: %w\", name, err)\n\t}\n",
		"json":    `{"id":17,"name":"x","ok":true,"tags":["a","b"]},`,
		"unicode": "Größere Übungen für ältere Öfen: 北京 東京. ",
	} {
		text, err := json.Marshal(strings.Repeat(piece, 100_000/len(piece)))
		require.NoError(b, err)
		doc := []byte(`{"list":[{"text":` + string(text) + `}],"bool":true,"int":100}`)
		for reader, unmarshal := range map[string]func([]byte, any) error{"jsonread": jsonread.Unmarshal, "encoding-json": json.Unmarshal} {
			b.Run(name+"/"+reader, func(b *testing.B) {
				b.SetBytes(int64(len(doc)))
				b.ReportAllocs()
				for b.Loop() {
					var read wire
					if err := unmarshal(doc, &read); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
