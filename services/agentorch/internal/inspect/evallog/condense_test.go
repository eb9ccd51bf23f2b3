package evallog_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog/logtest"
)

// recorded is the folder of real logs.
const recorded = "../../../../../testdata/golden/eval/logs"

// open opens a log of the folder.
func open(t *testing.T, path string) *logtest.Log {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	info, err := f.Stat()
	require.NoError(t, err)
	log, err := logtest.Open(f, info.Size())
	require.NoError(t, err)
	return log
}

func TestKeysOfAttachmentsAreThoseOfRealLogs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(recorded, "*.eval"))
	require.NoError(t, err)
	seen := 0
	for _, file := range files {
		samples, err := open(t, file).Samples()
		require.NoError(t, err, file)
		for _, s := range samples {
			value, _ := s.Document.Get("attachments")
			attachments, _ := value.(*orderedjson.Object)
			if attachments == nil {
				continue
			}
			for key, text := range attachments.All() {
				assert.Equal(t, key, evallog.AttachmentKey(text.(string)))
				seen++
			}
		}
	}
	assert.Positive(t, seen)
	// Of every length of tail, as mmh3 5.3 gives them.
	text := strings.Repeat("abcdefghij", 11)
	for n, key := range map[int]string{
		0:   "00000000000000000000000000000000",
		1:   "85555565f6597889e6b53a48510e895a",
		7:   "a6cd2f9fc09ee4991c3aa23ab155bbb6",
		8:   "cc8a0ab037ef8c0248890d60eb6940a1",
		9:   "0547c0cff13c796479b53df5b741e033",
		15:  "7c2164ed2ab09feb987d5977a9c48fb5",
		16:  "74a8ff2ca33a8876adb7cb43a8830ae3",
		17:  "b08f1c33452ec7357b20bda3020cdbc1",
		31:  "905a1a8f072877c57bf73b098fc91a42",
		100: "661a897eee0f7daa7941d4f73282e60b",
	} {
		assert.Equal(t, key, evallog.AttachmentKey(text[:n]), "%d bytes", n)
	}
}

func TestOnlyWhatReadersPutBackIsReplaced(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 30)
	const mark = evallog.AttachmentScheme
	for name, c := range map[string]struct {
		condense  func(*evallog.Condenser, json.RawMessage) json.RawMessage
		given     string
		replaced  []string // paths of members that are attachments afterwards
		untouched []string
	}{
		"a message's text":     {(*evallog.Condenser).Message, `{"id":"$","content":"$","tool_calls":[{"arguments":{"content":"$"},"view":{"content":"$"}}]}`, []string{"content"}, []string{"id"}},
		"a message's parts":    {(*evallog.Condenser).Message, `{"content":[{"type":"text","text":"$"},{"reasoning":"$","signature":"$"}],"metadata":{"text":"$"}}`, []string{"content.0.text", "content.1.reasoning"}, []string{"content.1.signature", "metadata.text"}},
		"an output's messages": {(*evallog.Condenser).Output, `{"choices":[{"message":{"content":"$"}}],"completion":"$"}`, []string{"choices.0.message.content"}, []string{"completion"}},
		"tools' descriptions":  {(*evallog.Condenser).Tools, `[{"name":"a","description":"$","parameters":{"description":"$"}}]`, []string{"0.description"}, []string{"0.parameters.description"}},
		"anything":             {(*evallog.Condenser).Any, `{"a":["$",{"b":"$"}],"$":1}`, []string{"a.0", "a.1.b"}, nil},
		"media alone":          {(*evallog.Condenser).Media, `{"content":[{"type":"image","image":"data:,x"},{"type":"text","text":"data:,$"}]}`, []string{"content.0.image"}, []string{"content.1.text"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := strings.ReplaceAll(c.given, "$", long)
			got := c.condense(&evallog.Condenser{}, json.RawMessage(given))
			require.True(t, json.Valid(got), string(got))
			for _, path := range c.replaced {
				assert.Contains(t, lookup(t, got, path), mark, path)
			}
			for _, path := range c.untouched {
				assert.Equal(t, lookup(t, []byte(given), path), lookup(t, got, path), path)
			}
			assert.Equal(t, len(c.replaced), strings.Count(string(got), mark))
		})
	}
}

// lookup is the text at a path of names and places.
func lookup(t *testing.T, document []byte, path string) string {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(document, &value))
	for step := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			value = v[step[0]-'0']
		}
	}
	text, _ := value.(string)
	return text
}

func TestOneHundredCharactersStayInPlace(t *testing.T) {
	t.Parallel()
	for n, replaced := range map[int]bool{100: false, 101: true} {
		got := (&evallog.Condenser{}).Any(json.RawMessage(`"` + strings.Repeat("ü", n) + `"`))
		assert.Equal(t, replaced, strings.Contains(string(got), evallog.AttachmentScheme), "%d characters", n)
	}
}

func TestAMessageIsInThePoolOnce(t *testing.T) {
	t.Parallel()
	var c evallog.Condenser
	a, b, d := json.RawMessage(`{"id":"a"}`), json.RawMessage(`{"id":"b"}`), json.RawMessage(`{"id":"d"}`)
	assert.Equal(t, [][2]int{{0, 2}}, c.Pool([]json.RawMessage{a, b}))
	assert.Equal(t, [][2]int{{0, 3}}, c.Pool([]json.RawMessage{a, b, d}))
	assert.Equal(t, [][2]int{{2, 3}, {0, 1}}, c.Pool([]json.RawMessage{d, a}))
	assert.Empty(t, c.Pool(nil))
}

// FuzzAttachmentsGiveTheDocumentBack condenses any document and puts its attachments back.
func FuzzAttachmentsGiveTheDocumentBack(f *testing.F) {
	long := strings.Repeat("word ", 40)
	for _, seed := range []string{`{}`, `"` + long + `"`, `{"` + long + `":["` + long + `\n\"\u00fc\ud800",{"a":null}],"b":"attachment://x"}`, `[NaN,"` + long + `"]`, `{"a`, `]`, `"\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		var c evallog.Condenser
		condensed := c.Any(json.RawMessage(document))
		want, err := orderedjson.Decode([]byte(document))
		if err != nil {
			return // It must not panic; what it gives back is not asked.
		}
		got, err := orderedjson.Decode(condensed)
		require.NoError(t, err)
		assert.Equal(t, orderedjson.Append(nil, want), orderedjson.Append(nil, resolve(got, c.Attachments())))
	})
}

// resolve puts attachments back.
func resolve(value any, attachments map[string]string) any {
	switch v := value.(type) {
	case string:
		if text, ok := attachments[strings.TrimPrefix(v, evallog.AttachmentScheme)]; ok && strings.HasPrefix(v, evallog.AttachmentScheme) {
			return text
		}
	case []any:
		for i := range v {
			v[i] = resolve(v[i], attachments)
		}
	case *orderedjson.Object:
		for name, member := range v.All() {
			v.Set(name, resolve(member, attachments))
		}
	}
	return value
}
