// Package peers tracks the services and workers on which runs depend: which are unreachable, the progress of open
// calls, and which workers have connected.
//
//	liveness of services ─▶ Outages ───────────▶ what an evaluation waits for
//	WatchRetries ─────────▶ ProgressListeners ─▶ the notes of open model calls
//	             ─────────▶ WorkerArrivals ────▶ runs that wait for a batch
//	WatchWorkers ─────────▶ WorkerArrivals ────▶ runs that wait for a worker
//
// No run depends on it for correctness. A broken watch loses news, which costs time only.
package peers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
)

// everyProject is the parent of watches over all projects.
const everyProject = "projects/-"

// Watches follow the news that services send between a call and its answer.
type Watches struct {
	Models modelv1.ModelServiceClient
	Tools  toolv1.ToolServiceClient
	// Workers are the functions that the workers of this service serve; nil if it hosts none.
	Workers *lastvalue.Map[worker.Offered, struct{}]

	Progress *ProgressListeners
	Arrivals *WorkerArrivals
	Logger   *slog.Logger
}

// Start starts the watches, each with a call of run, which runs a function in a goroutine of its own. They end with
// ctx.
func (w *Watches) Start(ctx context.Context, run func(func())) {
	run(func() {
		follow(ctx, w.Logger, func() (grpc.ServerStreamingClient[modelv1.WatchRetriesResponse], error) {
			return w.Models.WatchRetries(ctx, &modelv1.WatchRetriesRequest{Parent: everyProject})
		}, func(r *modelv1.WatchRetriesResponse) {
			w.Progress.Progress(r.GetParent(), r.GetRequestId(), r.GetNote())
			if r.GetNote() == nil { // It may be an answer that a batch has brought.
				w.Arrivals.Hint(r.GetParent(), waits.CallSubject(r.GetRequestId()))
			}
		})
	})
	run(func() {
		follow(ctx, w.Logger, func() (grpc.ServerStreamingClient[toolv1.WatchWorkersResponse], error) {
			return w.Tools.WatchWorkers(ctx, &toolv1.WatchWorkersRequest{Parent: everyProject})
		}, func(r *toolv1.WatchWorkersResponse) {
			if r.GetServed() {
				w.Arrivals.Arrived(r.GetParent(), worker.Offered{Kind: "tool", Name: r.GetTool()}.String())
			}
		})
	})
	if w.Workers != nil {
		run(func() { w.followHosted(ctx) })
	}
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

// follow reads a watch, and reopens it whenever it breaks.
func follow[R any](ctx context.Context, logger *slog.Logger, watch func() (grpc.ServerStreamingClient[R], error), news func(*R)) {
	for backoff := (retry.Backoff{First: firstPause, Max: maxPause}); ; {
		stream, err := watch()
		for err == nil {
			var r *R
			if r, err = stream.Recv(); err == nil {
				news(r)
				backoff.Reset()
			}
		}
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, io.EOF) && !rpcerr.Transient(err) {
			logger.Debug("a watch has ended", "error", err)
		}
		if backoff.Wait(ctx) != nil {
			return
		}
	}
}

// followHosted watches the workers that this service hosts.
func (w *Watches) followHosted(ctx context.Context) {
	served := w.Workers.Watch(func(worker.Offered) bool { return true })
	defer served.Close()
	for {
		select {
		case <-served.C:
			for _, news := range served.Next() {
				if !news.Gone {
					w.Arrivals.Arrived(resource.Project(news.Key.Project), news.Key.String())
				}
			}
		case <-ctx.Done():
			return
		}
	}
}
