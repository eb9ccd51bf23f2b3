package endpoint

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is what a side reader finds in an answer that comes in pieces.
func seen(t testing.TB, events bool, codec dialect.Codec, r io.Reader) *dialect.Facts {
	t.Helper()
	facts := &dialect.Facts{}
	s := newSideReader(events, codec, facts)
	var piece [64]byte
	for {
		n, err := r.Read(piece[:])
		s.add(piece[:n])
		if err != nil {
			s.end()
			return facts
		}
	}
}

// However an answer is cut into pieces on its way, the side reader sees the same.
func FuzzSideReader(f *testing.F) {
	f.Add("data: {\"id\":\"a\",\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\r\n\r\ndata:[DONE]\n\n: x\nevent: y\ndata: {", true)
	f.Add("data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":3}}}\n\n", true)
	f.Add(`{"id":"a","usage":{"prompt_tokens":1,"input_tokens":4}}`, false)
	f.Fuzz(func(t *testing.T, answer string, events bool) {
		for _, codec := range []dialect.Codec{openaichat.Codec{}, anthropic.Codec{}} {
			whole := seen(t, events, codec, strings.NewReader(answer))
			bytewise := seen(t, events, codec, iotest.OneByteReader(strings.NewReader(answer)))
			if !assert.ObjectsAreEqualValues(whole, bytewise) {
				t.Fatalf("%q: %v at once, %v by byte", answer, whole, bytewise)
			}
		}
	})
}

func TestTheSideReaderKeepsNoMoreThanItsBound(t *testing.T) {
	t.Parallel()
	facts := &dialect.Facts{}
	s := newSideReader(true, openaichat.Codec{}, facts)
	s.add([]byte("data: "))
	for range maxSideBytes / 1024 * 2 {
		s.add(bytes.Repeat([]byte("x"), 1024))
	}
	assert.LessOrEqual(t, len(s.kept), maxSideBytes)
	s.add([]byte("\n\ndata: {\"id\":\"after\",\"usage\":{\"prompt_tokens\":5}}\n\n"))
	s.end()
	assert.Equal(t, "after", facts.ID, "what follows a line that is too long is read again")
	assert.Equal(t, int64(5), facts.Usage.GetInputTokens())
}

// What an answer took that cannot be read, for its length or its encoding, is estimated, and not nothing.
func TestAnAnswerThatIsNotReadIsEstimated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		encoded bool
		length  int
		want    int64
	}{
		"encoded":  {true, 4000, 1000},
		"too long": {false, maxSideBytes + 1, mostTokens},
	} {
		facts := &dialect.Facts{}
		s := newSideReader(false, openaichat.Codec{}, facts)
		s.encoded, s.full = c.encoded, c.encoded
		s.add(bytes.Repeat([]byte("x"), c.length))
		assert.True(t, s.end(), name)
		assert.Equal(t, c.want, facts.Pieces, name)
	}
}

// Whatever a body is, what leaves is the body with the model's value exchanged and not another byte different.
func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"a":1.0,"model":"p/m" ,"b":[]}`))
	f.Add([]byte("{\"mod\\u0065l\":\"p\\/m\",\"x\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		found := make([]jsonscan.Span, 1)
		if jsonscan.Object(doc, []string{modelMember}, found) != nil || !found[0].Found() {
			return
		}
		r, err := http.NewRequest(http.MethodPost, "http://x", bytes.NewReader(doc))
		if err != nil {
			t.Fatal(err)
		}
		b, err := readBody(r, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		s := splice(b, found[0], `a"model`)
		want := string(doc[:found[0].Start]) + `"a\"model"` + string(doc[found[0].End:])
		for range 2 { // as often as there are attempts
			reader := s.reader()
			got, err := io.ReadAll(reader)
			if err != nil || reader.Close() != nil {
				t.Fatal(err)
			}
			if string(got) != want || int64(len(got)) != s.size() {
				t.Fatalf("%q became %q, with size %d", doc, got, s.size())
			}
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(doc, &members) == nil && json.Unmarshal([]byte(want), &members) != nil {
			t.Fatalf("%q is JSON and %q is not", doc, want)
		}
	})
}
