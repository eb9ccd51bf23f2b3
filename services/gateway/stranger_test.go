package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/services/gateway"
)

// raw sends bytes unchanged and returns the answer, within a minute.
func raw(t *testing.T, addr, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err, "no answer to a request whose body is unfinished")
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// A request without a credential is rejected after its headers: the server does not wait for the body.
func TestTheCredentialIsCheckedBeforeTheBodyIsRead(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	for name, framing := range map[string]string{"a length": "Content-Length: 6000000\r\n\r\n{", "chunks": "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "a short body": "Content-Length: 10\r\n\r\n{"} {
		for _, credential := range []string{"", "Authorization: Bearer wrong\r\n"} {
			answer := raw(t, addr, "POST /api/v1/projects/default/runs HTTP/1.1\r\nHost: localhost\r\n"+credential+framing)
			assert.Equal(t, http.StatusUnauthorized, answer.StatusCode, name)
			assert.Equal(t, "Bearer", answer.Header.Get("WWW-Authenticate"), name)
			assert.True(t, answer.Close, "%s: the connection ends, since the body is left unread", name)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			assert.Contains(t, string(body), "TOKEN_INVALID")
		}
	}
}

func TestHeadersOfRequestsAreBounded(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	for size, want := range map[int]int{bound.RequestHeaderBytes / 2: http.StatusNotFound, 2 * bound.RequestHeaderBytes: http.StatusRequestHeaderFieldsTooLarge} {
		answer := raw(t, addr, "GET /nothing HTTP/1.1\r\nHost: localhost\r\nX-Large: "+strings.Repeat("x", size)+"\r\n\r\n")
		assert.Equal(t, want, answer.StatusCode, size)
	}
}

// A body with very many values is rejected before it is decoded.
func TestABodyOfVeryManyValuesIsRefused(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	body := `{"a":[` + strings.Repeat("{},", bound.RequestValues) + `{}]}`
	for _, path := range []string{"runs", "models:streamGenerate"} { // The body of the second is a field of the request.
		resp, said := call(t, http.MethodPost, "http://"+addr+"/api/v1/projects/default/"+path, body, nil)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, path)
		assert.Contains(t, said, "INVALID_REQUEST", path)
		assert.Contains(t, said, "more than 200000 JSON values", path)
	}
}

// An error names some of the invalid fields and the number of the others, and its size is bounded.
func TestAnErrorNamesSomeOfManyFields(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{})
	const many = 20_000
	wrong := map[string]int{strings.Repeat("z", 10_000): 1}
	for i := range many {
		wrong[fmt.Sprintf("field%05d", i)] = 1
	}
	asked, err := json.Marshal(wrong)
	require.NoError(t, err)
	resp, body := call(t, http.MethodPost, "http://"+addr+"/api/v1/projects/default/runs", string(asked), nil)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	var got refusal
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	assert.Contains(t, got.Error.Message, "field00000: unknown field; known: ")
	assert.Contains(t, got.Error.Message, fmt.Sprintf("and %d more", many+1-bound.FieldViolations))
	assert.Len(t, got.Error.Details[1].FieldViolations, bound.FieldViolations)
	assert.Less(t, len(body), 64<<10)
}

// A watch over HTTP whose client reads nothing is cut off, and its resources are released.
func TestAWatchThatNobodyReadsIsCutOff(t *testing.T) {
	t.Parallel()
	backend := &runs{flooded: make(chan struct{})}
	addr := startWith(t, backend, gateway.Config{WriteTimeout: 100 * time.Millisecond}, "")
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /api/v1/projects/default/runs/flood:watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\nAccept: text/event-stream\r\n\r\n")
	require.NoError(t, err)
	select {
	case <-backend.flooded:
	case <-time.After(time.Minute):
		assert.Fail(t, "the service still sends to a client that reads nothing")
	}
}
