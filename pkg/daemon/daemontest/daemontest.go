// Package daemontest runs programs of one service in the process of a test, with an environment of their own.
package daemontest

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// Run runs a program with these variables and arguments until ctx ends. Ready, unless nil, is called with the address
// once it serves.
func Run(ctx context.Context, c daemon.Configuration, env map[string]string, ready func(net.Addr), args ...string) error {
	lookUp := func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
	return daemon.Run(ctx, daemon.Command{Args: args, Env: lookUp, Stderr: io.Discard, Ready: ready}, c)
}

// Refused returns why a program with these variables and this configuration file does not start.
func Refused(t *testing.T, c daemon.Configuration, env map[string]string, file string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	err := Run(t.Context(), c, env, nil, "-config", path)
	require.Error(t, err)
	return err
}

// Program is a program that serves.
type Program struct {
	Address string
	// TokenFile has the accepted token.
	TokenFile string
	t         *testing.T
}

// Start runs a program on a port of its own, with a data directory and a token of its own and these variables. It is
// stopped when the test ends, and must stop without an error.
func Start(t *testing.T, c daemon.Configuration, env map[string]string) *Program {
	t.Helper()
	dir := t.TempDir()
	p := &Program{TokenFile: filepath.Join(dir, "token"), t: t}
	all := map[string]string{
		"EVALFLEET_LISTEN": "127.0.0.1:0", "EVALFLEET_DATA_DIR": dir, "EVALFLEET_TOKEN_FILE": p.TokenFile, "EVALFLEET_LOG_LEVEL": "error",
	}
	for name, value := range env {
		all[name] = value
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	serving, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- Run(ctx, c, all, func(address net.Addr) { serving <- address }) }()
	t.Cleanup(stop)
	select {
	case address := <-serving:
		p.Address = address.String()
	case err := <-done:
		require.FailNow(t, "the program does not serve", "%v", err)
	case <-time.After(waittest.Bound):
		require.FailNow(t, "the program neither serves nor ends")
	}
	t.Cleanup(func() {
		stop()
		assert.NoError(t, waittest.For(t, done, "the end of the program that was told to stop"))
	})
	return p
}

// Stranger is a connection without a token.
func (p *Program) Stranger() *grpc.ClientConn { return p.connect(grpcclient.Options{}) }

// Known is a connection with the program's token.
func (p *Program) Known() *grpc.ClientConn {
	p.t.Helper()
	token, err := auth.ReadToken(p.TokenFile)
	require.NoError(p.t, err)
	return p.connect(grpcclient.Options{Token: token})
}

func (p *Program) connect(o grpcclient.Options) *grpc.ClientConn {
	p.t.Helper()
	conn, err := grpcclient.New(p.Address, o)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, conn.Close()) })
	return conn
}

// AssertServing checks that the program reports a gRPC service as serving.
func (p *Program) AssertServing(service string) {
	p.t.Helper()
	health, err := healthv1.NewHealthClient(p.Stranger()).Check(p.t.Context(), &healthv1.HealthCheckRequest{Service: service})
	require.NoError(p.t, err)
	assert.Equal(p.t, healthv1.HealthCheckResponse_SERVING, health.GetStatus())
}
