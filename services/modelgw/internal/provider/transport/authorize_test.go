package transport_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// refusing answers each request whose token is "0" before it reads the body, and the others by their first byte. Mixed
// counts the bodies, or the read parts of them, that are not all of one byte.
func refusing(mixed *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refused := r.Header.Get("Authorization") == "Bearer 0"
		if refused {
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(http.StatusUnauthorized)
			_ = http.NewResponseController(w).Flush()
		}
		body, err := io.ReadAll(r.Body)
		if len(body) > 0 && len(bytes.Trim(body, string(body[:1]))) > 0 {
			mixed.Add(1)
		}
		if !refused && err == nil {
			_, _ = w.Write(body[:1])
		}
	})
}

// A token that is refused while the body is still written is replaced, and the body is sent again from its beginning.
// What is written of the first one is never another request's, whose body may be in the same memory by then.
func TestATokenIsRefusedBeforeTheBodyHasCome(t *testing.T) {
	t.Parallel()
	var mixed atomic.Int64
	server := httptest.NewServer(refusing(&mixed))
	t.Cleanup(server.Close)
	client := transport.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for n := range 12 {
				var fetched int
				authorized := transport.Authorize(client, accesstoken.New(func(context.Context) (accesstoken.Token, error) {
					fetched++
					return accesstoken.Token{Value: config.NewSecret(strconv.Itoa(fetched - 1))}, nil
				}))
				letter := string(rune('a' + (12*caller+n)%26))
				body, err := buffer.Of(0, func(dst []byte) ([]byte, error) {
					return append(dst, bytes.Repeat([]byte(letter), []int{50, 30_000, 900_000}[n%3])...), nil
				})
				assert.NoError(t, err)
				post, err := transport.NewPost(waittest.Context(t), server.URL, body)
				assert.NoError(t, err)
				answer, err := provider.Send(authorized, post)
				body.Release()
				if assert.NoError(t, err) {
					got, err := io.ReadAll(answer.Body)
					assert.NoError(t, err)
					assert.NoError(t, answer.Body.Close())
					assert.Equal(t, letter, string(got))
				}
			}
		})
	}
	waittest.Return(t, callers.Wait, "the callers")
	server.Close()
	require.Zero(t, mixed.Load())
}
