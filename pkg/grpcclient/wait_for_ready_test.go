package grpcclient_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// nobody is an address without a listener. A recently free port may belong to another program.
const nobody = "127.0.0.1:1"

func patientHealth(t *testing.T, address string, wait time.Duration) healthv1.HealthClient {
	t.Helper()
	conn, err := grpcclient.New(address, grpcclient.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return healthv1.NewHealthClient(grpcclient.WaitForReady(conn, "toolexec", wait))
}

func TestAClientHearsOfAServiceThatStaysAway(t *testing.T) {
	t.Parallel()
	const short, long = 50 * time.Millisecond, time.Hour
	for name, tt := range map[string]struct{ wait, deadline time.Duration }{
		"after its patience":         {short, long},
		"before its own deadline":    {long, 20 * short},
		"without a deadline at all ": {short, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := patientHealth(t, nobody, tt.wait)
			ask := func(deadline time.Duration) []error {
				ctx := t.Context()
				if deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, deadline)
					defer cancel()
				}
				_, unary := client.Check(ctx, &healthv1.HealthCheckRequest{})
				errs := []error{unary}
				if tt.wait == short {
					_, stream := client.Watch(ctx, &healthv1.HealthCheckRequest{})
					errs = append(errs, stream)
				}
				return errs
			}
			errs := ask(tt.deadline)
			for d := 2 * tt.deadline; rpcerr.Code(errs[0]) == codes.DeadlineExceeded && d < waittest.Bound; d *= 2 {
				errs = ask(d) // A busy machine may miss the first deadline.
			}
			for _, err := range errs {
				require.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
				assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE, rpcerr.Reason(err))
				assert.Positive(t, rpcerr.RetryAfter(err))
				assert.ErrorContains(t, err, "toolexec at "+nobody+" has not answered for")
				assert.ErrorContains(t, err, "EVALFLEET_TOOLEXEC_ADDRESS")
			}
		})
	}
}

func TestACallerWhoLeavesDoesNotWait(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := patientHealth(t, nobody, time.Hour).Check(ctx, &healthv1.HealthCheckRequest{})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestAPatientCallGoesOnOnceTheServiceIsThere(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	client := patientHealth(t, "unix:"+socket, time.Minute)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{})
		answered <- err
	}()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	assert.NoError(t, waittest.For(t, answered, "the answer once the service is there"))
}
