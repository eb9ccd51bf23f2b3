package cli

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// waitingAfter is how long a call may take before a note shows what it may be waiting for.
const waitingAfter = 1500 * time.Millisecond

// waits notes which services behind the server do not answer, while a call waits. It is safe for concurrent use.
type waits struct {
	app    *app
	health healthv1.HealthClient

	mu   sync.Mutex
	told map[string]bool
}

// unary is a [grpc.UnaryClientInterceptor].
func (w *waits) unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if strings.HasPrefix(method, "/"+healthv1.Health_ServiceDesc.ServiceName+"/") {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	waiting, over := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		if retry.Sleep(waiting, waitingAfter) == nil {
			w.tell(waiting)
		}
	})
	defer telling.Wait()
	defer over()
	return invoke(ctx, method, request, reply, conn, options...)
}

// tell prints, once each, which services do not answer. A server without services behind it prints nothing.
func (w *waits) tell(ctx context.Context) {
	for _, service := range allinone.Targets {
		answer, err := w.health.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
		if err != nil || answer.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
			continue
		}
		w.mu.Lock()
		if !w.told[service] {
			w.told[service] = true
			w.app.note("waiting for %s, which does not answer the server", service)
		}
		w.mu.Unlock()
	}
}
