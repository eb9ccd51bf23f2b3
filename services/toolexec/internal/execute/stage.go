package execute

import (
	"context"
	"sync"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
)

// stages runs the stages of a batch one after another until one ends the run.
func (e *Executor) stages(ctx context.Context, b *Batch, events chan<- *toolv1.ExecuteToolsResponse) error {
	out := &emitter{calls: b.Calls, events: events, failed: map[string]bool{}}
	for begin := 0; begin < len(b.Calls); {
		if ctx.Err() != nil { // the caller left, or the service stops
			return e.effects.Error(b.key(begin), context.Cause(ctx))
		}
		if b.FailFast.Skips(b.Calls[begin].GetFunction(), out.hasFailed) {
			result, err := e.once(ctx, ctx, b, begin, notExecuted)
			if err != nil {
				return err
			}
			out.result(begin, result)
			begin++
			continue
		}
		end := toolcall.StageEnd(begin, len(b.Calls), b.parallel)
		over, err := e.stage(ctx, b, begin, end, out)
		if err != nil || over {
			return err
		}
		begin = end
	}
	return nil
}

// parallel reports whether a call may run in parallel with its neighbours. A call of an unknown tool runs alone.
func (b *Batch) parallel(i int) bool {
	offer := b.Offers.Find(b.Calls[i].GetFunction())
	return offer != nil && b.FailFast.Parallel(b.Calls[i].GetFunction(), offer.Public.GetParallel())
}

// stage runs the calls in [begin, end) in parallel and reports whether one of them ended the run.
func (e *Executor) stage(ctx context.Context, b *Batch, begin, end int, out *emitter) (over bool, err error) {
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
	)
	run := func(i int) {
		result, fault := e.once(ctx, within, b, i, e.perform)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case fault != nil: // of the ledger or the key, so it does not concern the parallel calls
			if err == nil {
				err = fault
			}
			return
		case result.GetFailure() != nil:
			over = true
			stop(errSibling)
		}
		out.result(i, result)
	}
	last := end - 1
	for i := begin; i < last; i++ {
		out.started(i)
		calls.Go(func() { run(i) })
	}
	out.started(last)
	run(last) // on this goroutine; most stages have one call
	calls.Wait()
	return over, err
}

// emitter sends the events of calls, and records which functions had a failed call.
type emitter struct {
	calls  []*toolv1.ToolCall
	events chan<- *toolv1.ExecuteToolsResponse

	mu     sync.Mutex
	failed map[string]bool
}

func (o *emitter) started(i int) {
	o.events <- &toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Started{
		Started: &toolv1.ToolStarted{CallId: o.calls[i].GetId(), Index: int32(i)},
	}}
}

func (o *emitter) result(i int, result *toolv1.ToolResult) {
	result.Index = int32(i)
	o.mu.Lock()
	defer o.mu.Unlock()
	if result.GetError() != nil {
		o.failed[o.calls[i].GetFunction()] = true
	}
	o.events <- &toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Result{Result: result}}
}

func (o *emitter) hasFailed(function string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed[function]
}
