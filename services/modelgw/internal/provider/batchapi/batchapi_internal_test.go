package batchapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

func read(stream io.Reader, most int) (all []string, err error) {
	err = lines(stream, most, func(line []byte) error {
		all = append(all, string(line))
		return nil
	}, func(err error) error { return err })
	return all, err
}

func TestLinesThatAreTooLongAreSkipped(t *testing.T) {
	t.Parallel()
	const most = 200 << 10 // above the reader's own buffer
	long, fits := strings.Repeat("x", most+1), strings.Repeat("y", most-1)
	all, err := read(strings.NewReader("a\n\n  \n"+long+"\r\n"+fits+"\nlast"), most)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", fits, "last"}, all)
}

func TestAFileThatBreaksOffIsAFailure(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	all, err := read(io.MultiReader(strings.NewReader("a\nb"), failing{broken}), 100)
	assert.ErrorIs(t, err, broken)
	assert.Equal(t, "a", all[0])
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestOneLineMeansTheSame(t *testing.T) {
	t.Parallel()
	document := []byte("{\"a\":\r\n [1,\n2], \"b\": \"x\\ny\u00e9\"}")
	line := oneLine(document)
	assert.NotContains(t, string(line), "\n")
	assert.NotContains(t, string(line), "\r")
	assert.JSONEq(t, string(document), string(line))
	assert.Contains(t, string(document), "\n", "the original is not changed")
}

func FuzzResult(f *testing.F) {
	f.Add(`{"custom_id":"b-1","response":{"status_code":200,"body":{}}}`)
	f.Add(`{"custom_id":"b-1","response":null,"error":{"code":"batch_expired","message":"m"}}`)
	f.Add(`{"custom_id":"b-1","error":{"code":429,"message":"m"}}`)
	f.Add(`{"custom_id":"b-1","error":"text"}`)
	f.Fuzz(func(t *testing.T, line string) {
		result, ok := resultOf([]byte(line))
		if !ok {
			return
		}
		assert.NotEmpty(t, result.ID)
		if result.Status != 0 {
			assert.True(t, json.Valid(result.Body), "%q", result.Body)
		}
	})
}

var walked = map[string]bool{"": true, ".r": true, ".r.list": true}

func walkAll(document string, most int64) (all []string, failed error) {
	w := newWalk(strings.NewReader(document), most, walked, func(path string, value json.RawMessage) error {
		all = append(all, path+"="+string(value))
		return nil
	})
	_ = w.value("")
	return all, w.failed
}

func TestADocumentIsReadByItsValues(t *testing.T) {
	t.Parallel()
	all, err := walkAll(`{"done":true,"r":{"x":{"y":1},"list":[{"a":1},[2],null]}}`, 100)
	require.NoError(t, err)
	assert.Equal(t, []string{".done=true", `.r.x={"y":1}`, `.r.list[]={"a":1}`, ".r.list[]=[2]", ".r.list[]=null"}, all)

	element := `"` + strings.Repeat("x", 100) + `"`
	all, err = walkAll(`{"r":{"list":[`+strings.Repeat(element+",", 99)+element+"]}}", 300)
	require.NoError(t, err, "the document may be longer than its values may")
	assert.Len(t, all, 100)
	_, err = walkAll(`{"r":{"list":["`+strings.Repeat("x", 1000)+`"]}}`, 300)
	require.ErrorIs(t, err, transport.ErrAnswerTooLarge)

	for _, other := range []string{`null`, `7`, `{"r":null}`, `{"r":{"list":5}}`, `{}`} {
		all, err = walkAll(other, 100)
		require.NoError(t, err, other)
		assert.Empty(t, all)
	}
	for _, cut := range []string{``, `{`, `{"r"`, `{"r":{"list":[1`, `{"r":{"list":[1,`, `{"r":{"list":[1]}`} {
		_, err = walkAll(cut, 100)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, cut)
	}
	for _, wrong := range []string{`{"r":{"list":[1}]}}`, `{1:2}`, `nonsense`} {
		_, err = walkAll(wrong, 100)
		assert.Error(t, err, wrong)
	}
}

// TestBatchesOfOthersHaveAnyForm: they are in the lists in which a batch is looked for.
func TestBatchesOfOthersHaveAnyForm(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"theirs","metadata":{"n":7,"evalfleet_batch":["x"]},"error":{"code":1},"created_at":"soon"},
			{"id":"ours","metadata":{"evalfleet_batch":"b1"}}]}`)
	}))
	defer server.Close()
	f := &Files{Client: Client{Exchange: &exchange.Exchange{Provider: "v", HTTP: server.Client()}, Authorize: func(http.Header) {}}, Base: server.URL, Dialect: OpenAI}
	id, err := f.Find(t.Context(), provider.BatchIntent{Key: "b1", Time: time.Now()})
	require.NoError(t, err)
	assert.Equal(t, "ours", id)
}
