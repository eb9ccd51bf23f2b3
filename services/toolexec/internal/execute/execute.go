// Package execute runs the calls of one message.
//
// Calls are grouped into stages, in the order of the message: neighbours whose tools allow it run in parallel, every
// other call alone. Each call is an effect of its own. An error of a call is either for the model, and the other calls
// continue, or it ends the run: then the calls in parallel are stopped, and later calls do not begin.
package execute

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// errSibling cancels the calls in parallel to one that ended the run.
var errSibling = errors.New("a call beside this one failed")

// Config has the dependencies and bounds of an executor.
type Config struct {
	// Effects runs the calls that have a key.
	Effects *effectrpc.Owner
	// Sandboxes is the client through which tools use sandboxes.
	Sandboxes sandboxv1.SandboxServiceClient
	// CallTimeout bounds the calls of batches without a bound of their own; 0 means none.
	CallTimeout time.Duration
	// Kept is called with the key of every call whose result has been stored in the ledger; it may be nil.
	Kept func(effect.Key)
	// Logger logs.
	Logger *slog.Logger
}

// Executor runs batches of calls. It is safe for concurrent use.
type Executor struct {
	effects   *effectrpc.Owner
	sandboxes sandboxv1.SandboxServiceClient
	timeout   time.Duration
	kept      func(effect.Key)
	log       *slog.Logger
	progress  lastvalue.Map[place, *effectv1.Note]

	life context.Context // of the batches
	stop context.CancelCauseFunc
	work sync.WaitGroup
}

// New returns an executor. Close it when it is no longer used.
func New(cfg Config) *Executor {
	life, stop := context.WithCancelCause(context.Background())
	if cfg.Kept == nil {
		cfg.Kept = func(effect.Key) {}
	}
	return &Executor{
		effects: cfg.Effects, sandboxes: cfg.Sandboxes, timeout: cfg.CallTimeout, kept: cfg.Kept, log: cfg.Logger,
		life: life, stop: stop,
	}
}

// Close cancels all batches, and returns when their goroutines have ended. Calls that have a key belong to
// Config.Effects, which must be drained first.
func (e *Executor) Close() {
	e.stop(effect.ErrDraining)
	e.work.Wait()
}

// Batch is the calls of one message.
type Batch struct {
	// Project is the project's id.
	Project string
	// RequestID is the prefix of the calls' keys. Without a request id, calls end with their caller.
	RequestID string
	// Attribution is on whose behalf the calls run. It is not part of the calls' content.
	Attribution *effectv1.Attribution
	// Offers are the tools; Refs are the references that they were made of, in the same order.
	Offers tool.Offers
	Refs   []*toolv1.ToolRef
	// Calls are in the order of the message.
	Calls []*toolv1.ToolCall
	// MaxOutputBytes bounds the text of a result in bytes; nil means 16 KiB, 0 and less means no bound. A tool's own
	// bound takes precedence.
	MaxOutputBytes *int64
	// Sandboxes are resource names by environment.
	Sandboxes map[string]string
	// Store has the entries of the run's store, JSON by key.
	Store map[string]string
	// FailFast names the tools whose calls run one after another and stop after the first failure.
	FailFast toolcall.FailFast
	// Timeout bounds each call; 0 means the executor's bound.
	Timeout time.Duration

	keys []effect.Key // of the calls; nil without a request id
}

// Run runs a batch. It calls emit when a call begins and when its result is available, never concurrently; results of
// parallel calls come in the order of their completion. After a result with a failure no further call begins.
//
// With a request id the batch continues when ctx ends or emit fails. Run fails if the effects cannot be stored, if the
// request id was used for other calls, and if the caller itself has to run one of the calls.
func (e *Executor) Run(ctx context.Context, b *Batch, emit func(*toolv1.ExecuteToolsResponse) error) error {
	b.setKeys()
	for i, call := range b.Calls {
		if offer := b.Offers.Find(call.GetFunction()); offer != nil && offer.Public.GetCallerRuns() {
			return rpcerr.InvalidField(fmt.Sprintf("calls[%d]", i), "%s is run by the caller, not here", call.GetFunction())
		}
	}
	progress := e.follow(b)
	defer progress.close()
	events := make(chan *toolv1.ExecuteToolsResponse, 2*len(b.Calls)) // capacity for all events, so that no call waits for a caller that left
	var fault error
	runCtx, end := e.context(ctx, b.RequestID != "")
	e.work.Go(func() {
		defer close(events)
		defer end()
		fault = e.stages(runCtx, b, events)
	})
	for {
		select {
		case event, open := <-events:
			if !open {
				return fault
			}
			if err := emit(event); err != nil {
				return err
			}
		case <-progress.news:
			if err := progress.emitNew(emit); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// context returns a context that ends with the service, and with its caller unless it is detached.
func (e *Executor) context(ctx context.Context, detached bool) (context.Context, func()) {
	if detached {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(e.life, func() { cancel(context.Cause(e.life)) })
	return ctx, func() { unlink(); cancel(nil) }
}
