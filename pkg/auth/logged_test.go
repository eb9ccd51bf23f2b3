package auth_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/peer"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/connlimit"
)

func TestRejectedCredentialsAreLoggedSeldomAndWithoutThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		a := auth.Logged(auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")}), slog.New(slog.NewTextHandler(&b, nil)))
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711}})
		ask := func(ctx context.Context, token string) error {
			_, err := a.Authenticate(ctx, token)
			return err
		}
		require.NoError(t, ask(ctx, "right"))
		require.Error(t, ask(ctx, ""))
		assert.Empty(t, b.String(), "an accepted credential and none are no news")

		for range 1000 {
			require.Error(t, ask(ctx, "wrong-secret"))
		}
		assert.Equal(t, 1, strings.Count(b.String(), "\n"), b.String())
		assert.Contains(t, b.String(), `msg="a credential was rejected" rejected=1 from=192.0.2.7`)
		time.Sleep(11 * time.Second)
		require.Error(t, ask(t.Context(), "wrong-secret"))
		assert.Contains(t, b.String(), `rejected=1000 from=""`)
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		time.Sleep(11 * time.Second)
		assert.Error(t, ask(connlimit.WithConn(t.Context(), server), "wrong-secret"))
		assert.Contains(t, b.String(), "rejected=1 from=pipe", "an HTTP request has no peer, but a connection")
		assert.NotContains(t, b.String(), "secret")
	})
}
