package transport_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Bodies of all lengths arrive whole, also several on one connection, and one that is shorter than it should be fails.
func TestBodiesArriveWhole(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			_, _ = w.Write(body)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client := transport.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	for _, size := range []int{1, 2_000, 3 << 10, 3<<10 + 1, 4 << 10, 100_000, 3 << 20} {
		text := strings.Repeat("x", size)
		b, err := buffer.Of(0, func(dst []byte) ([]byte, error) { return append(dst, text...), nil })
		require.NoError(t, err)
		post, err := transport.NewPost(t.Context(), server.URL, b)
		require.NoError(t, err)
		answer, err := client.Do(post)
		require.NoError(t, err)
		b.Release()
		got, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, text, string(got))
	}
	assert.EqualValues(t, 1, connections.Load())

	short := buffer.New()
	short.Bytes = append(short.Bytes, strings.Repeat("x", 10_000)...)
	post, err := transport.NewPost(t.Context(), server.URL, short)
	require.NoError(t, err)
	post.ContentLength++
	_, err = client.Do(post)
	require.Error(t, err)
	again, err := post.GetBody()
	require.NoError(t, err)
	got, err := io.ReadAll(again)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	assert.Equal(t, string(short.Bytes), string(got), "a body that was written in part is sent anew from its beginning")
	short.Release()
}

// A user in the address of a server is the credential of a request that has none, as for net/http's client, and
// failures do not name it.
func TestAUserInTheAddress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	client := transport.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	address := strings.Replace(server.URL, "://", "://ada:pass-word@", 1)
	for own, want := range map[string]string{"": "Basic YWRhOnBhc3Mtd29yZA==", "Bearer b": "Bearer b"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		if own != "" {
			r.Header.Set("Authorization", own)
		}
		answer, err := provider.Send(client, r)
		require.NoError(t, err)
		got, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, want, string(got))
	}
	server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	_, err = provider.Send(client, r)
	require.ErrorContains(t, err, "dial")
	assert.NotContains(t, err.Error(), "pass-word")
	assert.Contains(t, transport.Broken(t.Context(), "openai", err).Error(), "the connection to "+strings.TrimPrefix(server.URL, "http://")+" failed (dial)")
}
