package execute

import (
	"context"
	"slices"
	"sync"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// stages runs the stages of a batch one after another until one ends the run.
func (e *Executor) stages(ctx context.Context, b *Batch, events chan<- *toolv1.ExecuteToolsResponse) error {
	out := &emitter{calls: b.Calls, events: events, failed: make([]bool, len(b.Calls))}
	failed := map[string]bool{} // tools that fail fast and did
	for _, stage := range split(b) {
		if ctx.Err() != nil { // the caller left, or the service stops
			return e.effects.Error(b.key(stage[0]), context.Cause(ctx))
		}
		first := b.Calls[stage[0]]
		if failed[first.GetFunction()] {
			result, err := e.once(ctx, ctx, b, stage[0], notExecuted)
			if err != nil {
				return err
			}
			out.result(stage[0], result)
			continue
		}
		over, err := e.stage(ctx, b, stage, out)
		if err != nil || over {
			return err
		}
		if slices.Contains(b.FailFast, first.GetFunction()) {
			failed[first.GetFunction()] = out.failed[stage[0]]
		}
	}
	return nil
}

// split groups the calls, by index: neighbours that may run side by side, every other call alone. A call of an unknown tool is alone.
func split(b *Batch) [][]int {
	var stages [][]int
	together := false // whether the last stage takes neighbours
	for i, call := range b.Calls {
		offer := b.Offers.Find(call.GetFunction())
		parallel := offer != nil && offer.Public.GetParallel() && !slices.Contains(b.FailFast, call.GetFunction())
		if parallel && together {
			stages[len(stages)-1] = append(stages[len(stages)-1], i)
		} else {
			stages = append(stages, []int{i})
		}
		together = parallel
	}
	return stages
}

// stage runs calls side by side and tells whether one of them ended the run.
func (e *Executor) stage(ctx context.Context, b *Batch, indexes []int, out *emitter) (over bool, err error) {
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
		case fault != nil: // of the ledger or the key, so it says nothing about the calls beside it
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
	last := len(indexes) - 1
	for _, i := range indexes[:last] {
		out.started(i)
		calls.Go(func() { run(i) })
	}
	out.started(indexes[last])
	run(indexes[last]) // on the goroutine that there is; most stages have one call
	calls.Wait()
	return over, err
}

// emitter passes on what happens with calls, and keeps whether they failed.
type emitter struct {
	calls  []*toolv1.ToolCall
	events chan<- *toolv1.ExecuteToolsResponse

	mu     sync.Mutex
	failed []bool
}

func (o *emitter) started(i int) {
	o.events <- &toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Started{
		Started: &toolv1.ToolStarted{CallId: o.calls[i].GetId(), Index: int32(i)},
	}}
}

func (o *emitter) result(i int, result *toolv1.ToolResult) {
	result.Index = int32(i) // of this request; an earlier one may have had other calls before it
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed[i] = result.GetError() != nil
	o.events <- &toolv1.ExecuteToolsResponse{Event: &toolv1.ExecuteToolsResponse_Result{Result: result}}
}
