package httpdeadline_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/httpdeadline"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// A body that stops fails its reader, who can still answer, and does not hold the connection after that.
func TestABodyThatStopsIsCutOff(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	server := httptest.NewServer(httpdeadline.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		ended <- err
		w.WriteHeader(http.StatusBadRequest)
	}), 50*time.Millisecond))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome")
	require.NoError(t, err)
	require.ErrorIs(t, waittest.For(t, ended, "the end of the body"), os.ErrDeadlineExceeded)
	require.NoError(t, conn.SetDeadline(time.Now().Add(waittest.Bound)))
	answer, err := io.ReadAll(conn)
	require.NoError(t, err, "the server has not closed the connection")
	assert.Contains(t, string(answer), "400 Bad Request")
}

// A body that the handler leaves alone does not hold the connection either.
func TestABodyThatNobodyReadsIsCutOff(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(httpdeadline.Bodies(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 50*time.Millisecond))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, conn)
	require.NoError(t, err, "the server has not closed the connection")
}

// Once a body is complete, the handler may take any time: the bound is that of the body, and the client does not count
// as gone.
func TestABodyThatIsThereIsBoundNoMore(t *testing.T) {
	t.Parallel()
	const within = 20 * time.Millisecond
	server := httptest.NewServer(httpdeadline.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		select {
		case <-r.Context().Done():
			assert.Fail(t, "the request was ended")
		case <-time.After(10 * within):
		}
		_, _ = w.Write(got)
	}), within))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for range 2 { // the connection serves on
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
		require.NoError(t, err)
		answer, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		got, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		assert.Equal(t, "body", string(got))
		require.NoError(t, answer.Body.Close())
	}
}

// A client that asks before it sends its body has the refusal at once, whatever the length of the body.
func TestABodyThatIsRefusedBeforeItComesIsNotAwaited(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"10", "100000000"} {
		server := httptest.NewServer(httpdeadline.Bodies(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}), time.Hour))
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "+length+"\r\n\r\n")
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(waittest.Bound)))
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if assert.NoError(t, err, length) {
			assert.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
			assert.NoError(t, answer.Body.Close())
		}
		require.NoError(t, conn.Close())
		server.Close()
	}
}
