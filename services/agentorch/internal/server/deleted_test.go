package server_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// vanishing is a store whose journals are deleted between their opening and the first read.
type vanishing struct{ journal.Store }

func (v vanishing) Open(ctx context.Context, name string) (journal.Head, error) {
	head, err := v.Store.Open(ctx, name)
	if err == nil {
		err = v.Delete(ctx, name)
	}
	return head, err
}

func TestWhatIsDeletedWhileItIsReadIsNotFound(t *testing.T) {
	t.Parallel()
	r := serve(t)
	runs := r.over(vanishing{r.Store}, io.Discard)
	conn := grpcservertest.Serve(t, "user:ada", func(s grpc.ServiceRegistrar) { agentv1.RegisterRunServiceServer(s, runs) })
	client := agentv1.NewRunServiceClient(conn)
	for call, do := range map[string]func(name string) error{
		"get": func(name string) error {
			_, err := client.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
			return err
		},
		"events": func(name string) error {
			_, err := client.ListRunEvents(t.Context(), &agentv1.ListRunEventsRequest{Parent: name})
			return err
		},
		"watch": func(name string) error {
			stream, err := client.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: name})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		err := do(r.finished(answering()))
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%s: %v", call, err)
	}
}
