package httpdeadline_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/httpdeadline"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flood writes until it is stopped, and reports how.
func flood(within time.Duration, ended chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := httpdeadline.NewWriter(w, within)
		for {
			_, err := io.WriteString(out, strings.Repeat("x", 64<<10))
			if err == nil {
				err = out.FlushError()
			}
			if err != nil {
				ended <- err
				return
			}
		}
	})
}

func TestAClientThatNeverReadsIsCutOff(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	server := httptest.NewServer(flood(50*time.Millisecond, ended))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	require.ErrorIs(t, waittest.For(t, ended, "the end of the handler that writes"), os.ErrDeadlineExceeded)
}

// A client whose pauses are shorter than the bound is served for as long as it likes, and the connection serves on.
func TestASlowClientIsServed(t *testing.T) {
	t.Parallel()
	const pieces = 5
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := httpdeadline.NewWriter(w, time.Minute)
		for range pieces {
			_, _ = io.WriteString(out, "piece\n")
			_ = http.NewResponseController(out).Flush()
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 2 {
		answer, err := client.Get(server.URL)
		require.NoError(t, err)
		lines := 0
		for scanner := bufio.NewScanner(answer.Body); scanner.Scan(); lines++ {
			assert.Equal(t, "piece", scanner.Text())
		}
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, pieces, lines)
	}
}
