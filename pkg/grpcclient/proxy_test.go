package grpcclient_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/grpcclient"
)

// The token travels on a connection in clear: a proxy that leads to vendors does not get it. gRPC reads the environment
// once in a process, so the client is another one.
func TestAConnectionInClearPassesNoProxy(t *testing.T) {
	t.Parallel()
	const named = "EVALFLEET_TEST_ADDRESS"
	if address := os.Getenv(named); address != "" {
		conn, err := grpcclient.New(address, grpcclient.Options{})
		require.NoError(t, err)
		defer func() { assert.NoError(t, conn.Close()) }()
		conn.Connect()
		require.Eventually(t, func() bool { return conn.GetState().String() == "READY" }, time.Minute, 10*time.Millisecond)
		return
	}
	proxy, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan struct{}, 1)
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)

	// Addresses that are loopback pass no proxy anyway.
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	client := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	client.Env = append(os.Environ(), named+"=0.0.0.0:"+port, "HTTPS_PROXY=http://"+proxy.Addr().String(), "NO_PROXY=")
	ended := make(chan error, 1)
	go func() {
		output, err := client.CombinedOutput()
		t.Logf("%s", output)
		ended <- err
	}()
	select {
	case <-asked:
		kill()
		assert.Error(t, <-ended, "it was killed")
		t.Fatal("the proxy was asked")
	case err := <-ended:
		require.NoError(t, err)
	}
}
