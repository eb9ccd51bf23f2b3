package grpcclient_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry/telemetrytest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// streams answers with one message, and then fails or waits for its caller to leave.
type streams struct {
	toolv1.UnimplementedToolServiceServer
}

func (streams) ExecuteTools(r *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
	if err := s.Send(&toolv1.ExecuteToolsResponse{}); err != nil {
		return err
	}
	switch r.GetCalls()[0].GetFunction() {
	case "fails":
		return rpcerr.WorkerUnavailable("tool", "x", time.Second, "wait for it")
	case "waits":
		<-s.Context().Done()
		return s.Context().Err()
	}
	return nil
}

// The span of a stream ends once, however the stream ends: by its end, by a failure, or since its caller has left.
func TestTheSpanOfAStreamEndsWithIt(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"ends": "OK", "fails": "ResourceExhausted", "waits": "Canceled"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := telemetrytest.Collect(t)
			traces, flush := c.Traces(t, nil)
			server, err := grpcserver.New(grpcserver.Options{Logger: slog.New(slog.DiscardHandler), Auth: authtest.Allow{Name: "test"}, Traces: traces, Service: "toolexec"})
			require.NoError(t, err)
			toolv1.RegisterToolServiceServer(server, streams{})
			l := inprocess.Listen()
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			conn, err := grpcclient.Within(l, grpcclient.Options{})
			require.NoError(t, err)

			ctx, end := traces.ServeHTTP(t.Context(), httptest.NewRequestWithContext(t.Context(), "POST", "/", nil), "test", "/")
			ctx, leave := context.WithCancel(ctx)
			stream, err := toolv1.NewToolServiceClient(conn).ExecuteTools(ctx, &toolv1.ExecuteToolsRequest{Parent: "projects/p", Calls: []*toolv1.ToolCall{{Function: name}}})
			require.NoError(t, err)
			_, err = stream.Recv()
			require.NoError(t, err)
			if name == "waits" {
				leave()
			} else {
				for err == nil {
					_, err = stream.Recv()
				}
				assert.Equal(t, name == "ends", errors.Is(err, io.EOF))
			}
			server.Drain(waittest.Context(t))
			require.NoError(t, conn.Close())
			require.NoError(t, waittest.For(t, served, "the server to end"))
			leave()
			end("")
			calls := func() (spans []*telemetrytest.Span) {
				for _, span := range c.Spans() {
					if span.GetName() == "evalfleet.tool.v1.ToolService/ExecuteTools" {
						spans = append(spans, span)
					}
				}
				return spans
			}
			if name == "waits" { // Nothing tells when the span of a caller that has left ends.
				require.Eventually(t, func() bool { return len(calls()) == 2 }, waittest.Bound, 20*time.Millisecond)
			}
			flush()

			outer := c.Find(t, "POST /")
			var codes []any
			for _, span := range calls() {
				codes = append(codes, span.Attributes["rpc.response.status_code"])
				assert.Equal(t, outer.Trace(), span.Trace())
			}
			assert.Equal(t, []any{want, want}, codes, "at the caller and at the service")
		})
	}
}
