package rawhttp_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/bench/internal/rawhttp"
)

func TestMessagesAreThoseOfHTTP(t *testing.T) {
	t.Parallel()
	r, err := http.ReadRequest(bufioOf(string(rawhttp.Post("host", "/path", "t", `{"a": 1}`))))
	require.NoError(t, err)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	assert.JSONEq(t, `{"a": 1}`, string(body))
	assert.Equal(t, "Bearer t", r.Header.Get("Authorization"))
	for _, answer := range []string{string(rawhttp.JSON("{}")), rawhttp.Events + rawhttp.Chunk("{") + rawhttp.Chunk("}") + rawhttp.End} {
		theirs, err := http.ReadResponse(bufioOf(answer), r)
		require.NoError(t, err)
		body, err := io.ReadAll(theirs.Body)
		require.NoError(t, err)
		require.NoError(t, theirs.Body.Close())
		assert.Equal(t, "{}", string(body))

		ours, err := rawhttp.NewReader(strings.NewReader(answer)).Answer(nil)
		require.NoError(t, err)
		assert.Equal(t, "{}", string(ours))
	}
}

func TestAnswersOfAServerAreRead(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pieces":
			for _, piece := range []string{"a", "bc"} {
				_, _ = io.WriteString(w, piece)
				assert.NoError(t, http.NewResponseController(w).Flush())
			}
		case "/none":
			http.Error(w, "there is none", http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	ask := func(path string, piece func([]byte)) ([]byte, error) {
		conn, err := (&net.Dialer{}).Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = conn.Write(rawhttp.Post("host", path, "", "{}"))
		require.NoError(t, err)
		return rawhttp.NewReader(conn).Answer(piece)
	}
	var pieces []string
	_, err := ask("/pieces", func(piece []byte) { pieces = append(pieces, string(piece)) })
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "bc"}, pieces)
	_, err = ask("/none", nil)
	require.ErrorIs(t, err, rawhttp.ErrStatus)
	require.ErrorContains(t, err, "there is none")
}

func bufioOf(text string) *bufio.Reader { return bufio.NewReader(strings.NewReader(text)) }
