package main

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, state := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	assert.NoError(t, probe(l.Addr().String()))
	state.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	assert.ErrorContains(t, probe(l.Addr().String()), "NOT_SERVING")

	server.Stop()
	require.NoError(t, waittest.For(t, served, "the server to end"))
	assert.Error(t, probe(l.Addr().String()))
}
