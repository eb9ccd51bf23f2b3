// Package grpcservertest serves services in memory, with the interceptors that they have in programs.
package grpcservertest

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// Serve serves the services that register adds until the test ends, and returns a connection to them. Every caller is
// the principal of that name.
func Serve(t testing.TB, principal string, register func(grpc.ServiceRegistrar)) grpcclient.Conn {
	t.Helper()
	server, err := grpcserver.New(grpcserver.Options{
		Logger: slog.New(slog.DiscardHandler), Auth: authtest.Allow{Name: principal},
	})
	require.NoError(t, err)
	register(server)
	listener := inprocess.Listen()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpcclient.Within(listener, grpcclient.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		server.Stop()
		assert.NoError(t, waittest.For(t, served, "the server to end"))
	})
	return conn
}
