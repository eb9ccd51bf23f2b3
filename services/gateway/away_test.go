package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/config"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/gateway"
)

// A client of an unreachable service receives an error that names the service, before the client's own deadline.
func TestClientsHearWhichServiceIsAway(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"
	away, err := grpcclient.New(nobody, grpcclient.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, away.Close()) })
	addr, _ := startBefore(t, away, gateway.Config{}, "")

	conn, err := grpcclient.New(addr, grpcclient.Options{Token: config.NewSecret("right")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	runs := agentv1.NewRunServiceClient(conn)
	// The callers' deadlines, in seconds: a busy machine may miss the first ones. All are shorter than the gateway's
	// own bound.
	deadlines := []int{4, 8, 12}
	for name, ask := range map[string]func(context.Context) error{
		"a call": func(ctx context.Context) error {
			_, err := runs.GetRun(ctx, &agentv1.GetRunRequest{Name: "projects/default/runs/r1"})
			return err
		},
		"a stream": func(ctx context.Context) error {
			watch, err := runs.WatchRun(ctx, &agentv1.WatchRunRequest{Name: "projects/default/runs/r1"})
			if err == nil {
				_, err = watch.Recv()
			}
			return err
		},
		"a worker": func(ctx context.Context) error {
			stream, err := workerv1.NewWorkerServiceClient(conn).Connect(ctx)
			if err != nil {
				return err
			}
			register := &workerv1.Register{Offers: []*workerv1.Offer{{Kind: "scorer", Name: "s"}}}
			if err := stream.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: register}}); err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var err error
			for _, seconds := range deadlines {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
				err = ask(ctx)
				cancel()
				if rpcerr.Code(err) != codes.DeadlineExceeded {
					break
				}
			}
			require.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
			assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE, rpcerr.Reason(err))
			assert.Positive(t, rpcerr.RetryAfter(err))
			assert.ErrorContains(t, err, "agentorch at "+nobody+" has not answered for")
		})
	}
	t.Run("health", func(t *testing.T) {
		t.Parallel()
		require.Eventually(t, func() bool {
			answer, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "agentorch"})
			return err == nil && answer.GetStatus() == healthv1.HealthCheckResponse_NOT_SERVING
		}, time.Minute, 10*time.Millisecond)
	})
	t.Run("REST", func(t *testing.T) {
		t.Parallel()
		var resp *http.Response
		var body string
		for _, seconds := range deadlines {
			resp, body = call(t, http.MethodGet, "http://"+addr+"/api/v1/projects/default/runs/r1", "", map[string]string{"Grpc-Timeout": fmt.Sprintf("%dS", seconds)})
			if resp.StatusCode != http.StatusGatewayTimeout {
				break
			}
		}
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Contains(t, body, `"SERVICE_UNAVAILABLE"`)
		assert.Contains(t, body, "agentorch at "+nobody)
	})
}
