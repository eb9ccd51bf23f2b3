package grpcserver_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// BenchmarkCall is what a hop from one service to another costs, with all interceptors: the numbers of docs/adr/0017.
func BenchmarkCall(b *testing.B) {
	for name := range forms {
		b.Run("unary/"+name, func(b *testing.B) {
			f := serveForm(b, name, slog.LevelError)
			f.list = func(context.Context, *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
				return &toolv1.ListToolsResponse{NextPageToken: "x"}, nil
			}
			b.ReportAllocs()
			for b.Loop() {
				_, err := f.tools.ListTools(b.Context(), listing())
				require.NoError(b, err)
			}
		})
		b.Run("stream/"+name, func(b *testing.B) {
			f := serveForm(b, name, slog.LevelError)
			f.execute = func(_ *toolv1.ExecuteToolsRequest, s toolv1.ToolService_ExecuteToolsServer) error {
				return errors.Join(s.Send(&toolv1.ExecuteToolsResponse{}), s.Send(&toolv1.ExecuteToolsResponse{}))
			}
			b.ReportAllocs()
			for b.Loop() {
				stream, err := f.tools.ExecuteTools(b.Context(), executing())
				require.NoError(b, err)
				for err == nil {
					_, err = stream.Recv()
				}
				require.ErrorIs(b, err, io.EOF)
			}
		})
	}
}
