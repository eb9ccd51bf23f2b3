package turn

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
)

// everyProject is the parent of watches over all projects.
const everyProject = "projects/-"

// listen follows what the owners of effects tell between a call and its answer, until the engine ends. What is missed costs nothing but time: runs that wait look again by
// themselves, and notes are for people.
func (e *Engine) listen() {
	e.working.Go(func() {
		follow(e, func(ctx context.Context) (grpc.ServerStreamingClient[modelv1.WatchRetriesResponse], error) {
			return e.deps.Models.WatchRetries(ctx, &modelv1.WatchRetriesRequest{Parent: everyProject})
		}, func(r *modelv1.WatchRetriesResponse) { e.hearing.tell(r.GetParent(), r.GetRequestId(), r.GetNote()) })
	})
	e.working.Go(func() {
		follow(e, func(ctx context.Context) (grpc.ServerStreamingClient[toolv1.WatchWorkersResponse], error) {
			return e.deps.Tools.WatchWorkers(ctx, &toolv1.WatchWorkersRequest{Parent: everyProject})
		}, func(r *toolv1.WatchWorkersResponse) {
			if r.GetServed() {
				e.arrived(r.GetParent(), worker.Offered{Kind: "tool", Name: r.GetTool()}.String())
			}
		})
	})
	if e.deps.Workers != nil {
		e.working.Go(func() { e.followOwn() })
	}
}

// follow reads a watch, and begins it again whenever it breaks.
func follow[R any](e *Engine, watch func(context.Context) (grpc.ServerStreamingClient[R], error), tell func(*R)) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		stream, err := watch(e.flights)
		for err == nil {
			var news *R
			if news, err = stream.Recv(); err == nil {
				tell(news)
				pause = firstPause
			}
		}
		if e.flights.Err() != nil {
			return
		}
		if !errors.Is(err, io.EOF) && !rpcerr.Transient(err) {
			e.deps.Logger.Debug("a watch has ended", "error", err)
		}
		if retry.Sleep(e.flights, pause) != nil {
			return
		}
	}
}

// followOwn hears of the workers that this service hosts.
func (e *Engine) followOwn() {
	served := e.deps.Workers.Served().Watch(func(worker.Offered) bool { return true })
	defer served.Close()
	for {
		select {
		case <-served.C:
			for _, news := range served.Next() {
				if !news.Gone {
					e.arrived("projects/"+news.Key.Project, news.Key.String())
				}
			}
		case <-e.flights.Done():
			return
		}
	}
}

// hearing is who wants to hear of a call that is open, by the project and the key of its request.
type hearing struct {
	mu sync.Mutex
	by map[[2]string]func(*effectv1.Note)
}

// hear has a function called with what is told of a request, until the function that is returned is called.
func (h *hearing) hear(parent, requestID string, told func(*effectv1.Note)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[[2]string]func(*effectv1.Note){}
	}
	key := [2]string{parent, requestID}
	h.by[key] = told
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.by, key)
	}
}

func (h *hearing) tell(parent, requestID string, note *effectv1.Note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if told := h.by[[2]string{parent, requestID}]; told != nil {
		told(note)
	}
}

// maxArrivals bounds the subjects of which arrivals are remembered; workers name what they like.
const maxArrivals = 4096

// arrivals remembers when workers of a subject came last, so that a run that is about to wait for one does not miss it.
type arrivals struct {
	mu   sync.Mutex
	last *lru.Cache[[2]string, time.Time]
}

func newArrivals() arrivals { return arrivals{last: lru.New[[2]string, time.Time](maxArrivals)} }

func (a *arrivals) note(parent, subject string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last.Put([2]string{parent, subject}, time.Now(), 1)
}

func (a *arrivals) since(parent, subject string, then time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, _ := a.last.Get([2]string{parent, subject})
	return last.After(then)
}

// arrived has the runs of a project look again that wait for a subject.
func (e *Engine) arrived(parent, subject string) {
	e.arrivals.note(parent, subject)
	e.mu.Lock()
	actors := slices.Collect(maps.Values(e.actors))
	e.mu.Unlock()
	for _, a := range actors {
		if a.waitsFor(parent, subject) {
			a.post(mail{arrived: subject})
		}
	}
}
