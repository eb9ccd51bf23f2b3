package grpcclient_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/grpcclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhoIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	const patience, tick = time.Minute, 10 * time.Millisecond
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	first := grpc.NewServer()
	go func() { _ = first.Serve(l) }()
	conn, err := grpcclient.New(address, grpcclient.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	assert.False(t, grpcclient.Away(conn), "nothing is known yet")
	first.Stop()
	require.Eventually(t, func() bool { return grpcclient.Away(conn) }, patience, tick)

	again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	second := grpc.NewServer()
	go func() { _ = second.Serve(again) }()
	t.Cleanup(second.Stop)
	conn.ResetConnectBackoff()
	require.Eventually(t, func() bool { return !grpcclient.Away(conn) }, patience, tick)
}
