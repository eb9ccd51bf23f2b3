package server

import (
	"google.golang.org/grpc"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/worker"
)

// WatchWorkers streams the tools that workers serve, and every change of them.
func (t *Tools) WatchWorkers(request *toolv1.WatchWorkersRequest, stream grpc.ServerStreamingServer[toolv1.WatchWorkersResponse]) error {
	meant, err := resource.Within("parent", request.GetParent())
	if err != nil {
		return err
	}
	return t.served.Follow(stream.Context(), func(of worker.Offered) bool { return meant(of.Project) }, func(news *lastvalue.Update[worker.Offered, struct{}]) error {
		if news == nil {
			return stream.Send(&toolv1.WatchWorkersResponse{})
		}
		return stream.Send(&toolv1.WatchWorkersResponse{Parent: resource.Project(news.Key.Project), Tool: news.Key.Name, Served: !news.Gone})
	})
}
