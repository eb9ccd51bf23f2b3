package dialect_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// read returns the events of a stream as `type|data`.
func read(r io.Reader) (all []string, err error) {
	for event, failure := range dialect.Events(r) {
		if failure != nil {
			return all, failure
		}
		all = append(all, event.Type+"|"+string(event.Data))
	}
	return all, nil
}

func TestAnEventIsReadAsItWasAppended(t *testing.T) {
	t.Parallel()
	stream := dialect.AppendEvent([]byte(": waiting\n\n"), "x", []byte("{\n\"a\":\r\n 1}\n"))
	stream = dialect.AppendEvent(stream, "", []byte(`"line\nbreak"`))
	assert.Equal(t, ": waiting\n\nevent: x\ndata: {\"a\": 1}\n\ndata: \"line\\nbreak\"\n\n", string(stream))
	var read []string
	for event, err := range dialect.Events(bytes.NewReader(stream)) {
		require.NoError(t, err)
		read = append(read, event.Type+"|"+string(event.Data))
	}
	assert.Equal(t, []string{`x|{"a": 1}`, `|"line\nbreak"`}, read)
}

func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string][]string{
		"data: a\n\ndata: b\n\n":                 {"|a", "|b"},
		"data: a\r\n\r\ndata: b\r\rdata: c\n\n":  {"|a", "|b", "|c"},
		"data: one\ndata: two\n\n":               {"|one\ntwo"},
		"event: x\ndata: a\n\ndata: b\n\n":       {"x|a", "|b"},
		": comment\nid: 7\nretry: 5\ndata:a\n\n": {"|a"},
		"\uFEFFdata: a\n\n":                      {"|a"},
		"event: x\n\ndata: a\n\n":                {"|a"},
		"data\n\n":                               {"|"},
		"data:  two blanks\n\n":                  {"| two blanks"},
		"data: a\n\ndata: cut off":               {"|a", "|cut off"},
		"\n\n\n":                                 nil,
		"":                                       nil,
	} {
		for name, reader := range map[string]io.Reader{
			"whole": strings.NewReader(stream), "by byte": iotest.OneByteReader(strings.NewReader(stream)),
		} {
			got, err := read(reader)
			require.NoError(t, err)
			assert.Equal(t, want, got, "%q %s", stream, name)
		}
	}
}

func TestAStreamThatFailsSaysSo(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	got, err := read(io.MultiReader(strings.NewReader("data: a\n\n"), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	assert.Equal(t, []string{"|a"}, got)
	_, err = read(io.LimitReader(endless{}, 40<<20))
	require.ErrorIs(t, err, dialect.ErrEventTooLarge)
	_, err = read(io.LimitReader(endless{line: "data: " + strings.Repeat("x", 1000) + "\n"}, 40<<20))
	require.ErrorIs(t, err, dialect.ErrEventTooLarge, "many lines of one event are bounded too")
}

// endless gives one line again and again; without one, a line that does not end.
type endless struct{ line string }

func (e endless) Read(p []byte) (int, error) {
	line := e.line
	if line == "" {
		line = "x"
	}
	n := 0
	for n+len(line) <= len(p) {
		n += copy(p[n:], line)
	}
	return n, nil
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\n\r\nevent: x\ndata: b\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		whole, err := read(strings.NewReader(stream))
		if err != nil {
			t.Skip()
		}
		bytewise, err := read(iotest.OneByteReader(strings.NewReader(stream)))
		if err != nil {
			t.Fatal(err)
		}
		if !assert.ObjectsAreEqual(whole, bytewise) {
			t.Fatalf("%q by byte, %q at once", bytewise, whole)
		}
	})
}

func TestThinkTagsGoBothWays(t *testing.T) {
	t.Parallel()
	part := &contentv1.Content{InternalJson: `{"a": 1}`, Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{
		Reasoning: "one\n<think>two</think>", Summary: new("s"), Signature: new(`a"b<c>`), Redacted: true,
	}}}
	text := dialect.Think(part)
	assert.Equal(t, "<think signature=\"a&quot;b&lt;c&gt;\" redacted=\"true\" internal=\"eyJhIjogMX0=\">\n<summary>s</summary>\none\n<think>two</think>\n</think>", text)
	reasoning, rest, ok := dialect.CutThink("before " + text + " after")
	require.True(t, ok)
	assert.Equal(t, "one\n<think>two</think>", reasoning)
	assert.Equal(t, "before  after", rest)

	again, rest, ok := dialect.ReadThink("before " + text + " after")
	require.True(t, ok)
	assert.Equal(t, "before  after", rest)
	assert.True(t, proto.Equal(part, again), "%v", again)
	plain, _, ok := dialect.ReadThink("<think>just so</think>")
	require.True(t, ok)
	assert.True(t, proto.Equal(chat.ReasoningPart("just so"), plain), "%v", plain)
}

func TestTextThatOnlyLooksLikeThinkingStays(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", "<think>open", "</think>", "<thinking>x</thinking>", "<THINK>a</THINK>", "<think a", "<think><think></think>"} {
		_, rest, ok := dialect.CutThink(text)
		assert.False(t, ok, text)
		assert.Equal(t, text, rest)
	}
	reasoning, rest, ok := dialect.CutThink("<think>a</think>b<think>c</think>d")
	require.True(t, ok)
	assert.Equal(t, "a", reasoning)
	assert.Equal(t, "b<think>c</think>d", rest, "only the first block is cut out")
}

func FuzzCutThink(f *testing.F) {
	f.Add("a<think x=\"1\">b<think>c</think></think>d")
	f.Fuzz(func(t *testing.T, text string) {
		if reasoning, rest, ok := dialect.CutThink(text); ok && len(reasoning)+len(rest) > len(text) {
			t.Fatalf("%q and %q of %q", reasoning, rest, text)
		}
	})
}

func TestACallIsMadeOfWhatTheModelWrote(t *testing.T) {
	t.Parallel()
	tools := []*toolv1.ToolInfo{{Name: "f", ParametersJson: `{"properties": {"second": {}, "first": {}}}`}, {Name: "none"}}
	call := dialect.ToolCall("c", "f", ` {"b": 1.0, "a": 2} `, tools)
	assert.Equal(t, `{"b": 1.0, "a": 2}`, call.GetArgumentsJson())
	assert.JSONEq(t, `{"second": "bare"}`, dialect.ToolCall("c", "f", "bare", tools).GetArgumentsJson(), "the first parameter as the schema lists them")
	assert.JSONEq(t, `{}`, dialect.ToolCall("c", "none", "bare", tools).GetArgumentsJson())
	assert.NotEmpty(t, dialect.ToolCall("c", "f", `{"a"`, tools).GetParseError())
	assert.Equal(t, "c", dialect.ToolCall("c", "unknown", "", nil).GetId())
}

func TestDataURIs(t *testing.T) {
	t.Parallel()
	mediaType, data, ok := dialect.SplitDataURI("data:audio/wav;rate=8;base64,AAAA,BB")
	assert.Equal(t, []any{"audio/wav", "AAAA,BB", true}, []any{mediaType, data, ok})
	for _, uri := range []string{"", "data:", "data:text/plain", "http://x,y"} {
		_, _, ok := dialect.SplitDataURI(uri)
		assert.False(t, ok, uri)
	}
	assert.Equal(t, "<content-internal>e30=</content-internal>", dialect.WrapInternal("{}"))
}

func TestDataThatIsNoBase64IsFound(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"aGk=", "aA==", "aGkh", "aG\r\nkh", strings.Repeat("AAAA", 1000)} {
		require.NoError(t, dialect.CheckBase64("p", data), data)
		require.NoError(t, dialect.CheckDataURI("p", "data:image/png;base64,"+data), data)
	}
	for _, data := range []string{"", "=", "aGk", "aGk==", "a===", "aG=k", "a-_h", "not base64!", "aGk= ", "gr\u00f6\u00dfe", "AAAA===="} {
		require.Error(t, dialect.CheckBase64("p", data), data)
		require.ErrorContains(t, dialect.CheckDataURI("p", "data:image/png;base64,"+data), "p: ", data)
	}
	for _, uri := range []string{"https://example.com/a.png", "", "aGk="} {
		require.NoError(t, dialect.CheckDataURI("p", uri), uri)
	}
	for _, uri := range []string{"data:", "data:image/png,aGk=", "data:image/png;base64", "data:;charset=utf-8,x"} {
		require.ErrorContains(t, dialect.CheckDataURI("p", uri), ";base64,", uri)
	}
}

func TestMediaIsDataOrOnTheWeb(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"https://example.com/a.png", "http://example.com:8080/?q=a b", "data:image/png;base64,aGk="} {
		require.NoError(t, dialect.CheckMedia("p", uri), uri)
	}
	for _, uri := range []string{"", "aGk=", "/etc/passwd", "file:///etc/passwd", "https://", "https:/a", "gs://b/o", "//example.com/a", "https://[::1", "data:image/png,x"} {
		require.ErrorContains(t, dialect.CheckMedia("p", uri), "p: ", uri)
	}
}

func FuzzCheckBase64(f *testing.F) {
	f.Add("aGk=")
	f.Add("a\nGk=")
	f.Fuzz(func(t *testing.T, data string) {
		_, err := base64.StdEncoding.DecodeString(data)
		if reads := err == nil && strings.Trim(data, "\r\n") != ""; reads != (dialect.CheckBase64("p", data) == nil) {
			t.Fatalf("%q: %v", data, err)
		}
	})
}

func TestASchemaIsEditedAtAllLevels(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type": "object", "properties": {"minimum": {"minimum": 1, "enum": [1.0]}}, "$defs": {"d": {"pattern": "x"}}}`: `{"type":"object","properties":{"minimum":{"enum":[1.0]}},"$defs":{"d":{}}}`,
		`{"anyOf":[{"maximum":1},7],"items":{"examples":[1]},"additionalProperties":{"maxLength":1}}`:                    `{"anyOf":[{},7],"items":{},"additionalProperties":{}}`,
		`{"type": "object"}`: `{"type": "object"}`,
		`no schema`:          `no schema`,
	} {
		assert.Equal(t, want, dialect.EditSchema(schema, dialect.DropBounds))
	}
}

// drip gives a few bytes at a time.
type drip struct{ io.Reader }

func (d drip) Read(p []byte) (int, error) { return d.Reader.Read(p[:min(len(p), 1400)]) }

// The time of what a vendor sends is not that of its length times its length.
func TestLongAnswersAreReadInTime(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*testing.T){
		"an event that comes in many pieces": func(t *testing.T) {
			events, err := read(drip{strings.NewReader("data: " + strings.Repeat("a", 24<<20) + "\r\n\r\n")})
			require.NoError(t, err)
			require.Len(t, events, 1)
			assert.Len(t, events[0], 24<<20+1)
		},
		"many open tags": func(t *testing.T) {
			thought, rest, ok := dialect.CutThink(strings.Repeat("<think>", 1<<20) + "a" + strings.Repeat("</think>", 1<<20) + "b")
			assert.True(t, ok)
			assert.Len(t, thought, 15<<20-15+1)
			assert.Equal(t, "b", rest)
		},
		"a block with many nulls": func(t *testing.T) {
			var block strings.Builder
			for i := range 200_000 {
				fmt.Fprintf(&block, `"m%d":null,`, i)
			}
			part := dialect.KeptBlocks{"x": {Member: "m", Type: "y"}}.Data("x", []byte(`{"type":"x",`+block.String()+`"z":1}`))
			assert.JSONEq(t, `{"m":{"type":"y","z":1}}`, part.GetData().GetJson())
		},
		"results of many calls": func(t *testing.T) {
			var open dialect.OpenCalls
			calls := make([]*toolv1.ToolCall, 200_000)
			for i := range calls {
				calls[i] = &toolv1.ToolCall{Id: fmt.Sprint(i), Function: "f"}
			}
			open.Open(calls)
			for range 100_000 {
				open.CloseName("f")
			}
			for i := range 100_000 {
				open.CloseID(calls[len(calls)-1-i].GetId(), "f")
			}
			assert.Empty(t, open.IDs())
		},
		"many whole parts": func(t *testing.T) {
			var said dialect.Said
			parts := make([]*contentv1.Content, 50_000)
			for i := range parts {
				parts[i] = chat.ImagePart(fmt.Sprint("data:image/png;base64,", i))
				said.Add(dialect.PartDelta(parts[i]), silent{})
			}
			for part := range said.Rest(append(parts, chat.ImagePart("data:,")), dialect.Readable) {
				assert.Equal(t, "data:,", part.GetImage().GetMedia().GetUri())
			}
		},
		"an error with many numbers": func(t *testing.T) {
			var said strings.Builder
			for i := range 500_000 {
				fmt.Fprint(&said, 1000+i, " ")
			}
			_, _, ok := dialect.Room(said.String())
			assert.False(t, ok)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			read(t)
			assert.Less(t, time.Since(begun), waittest.Bound)
		})
	}
}

// silent is a writer of pieces that writes nothing.
type silent struct{}

func (silent) WriteBegin()                      {}
func (silent) WriteText(string)                 {}
func (silent) WriteReasoning(string)            {}
func (silent) WriteCall(*modelv1.ToolCallDelta) {}
func (silent) WritePart(*contentv1.Content)     {}
