// Package execute runs the calls of one message.
//
// Calls are grouped into stages, in the order of the message: neighbours whose tools allow it run side by side, every
// other call alone. Each call is an effect of its own. What goes wrong in a call is either for the model, and the other
// calls go on, or it ends the run: then the calls beside it are stopped, and later ones do not begin.
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

// errSibling ends calls beside one that ended the run.
var errSibling = errors.New("a call beside this one failed")

// Config is what an executor works with.
type Config struct {
	// Effects runs the calls that have a key.
	Effects *effectrpc.Owner
	// Sandboxes is where tools act.
	Sandboxes sandboxv1.SandboxServiceClient
	// CallTimeout bounds calls of batches that set no bound; 0 is none.
	CallTimeout time.Duration
	// Kept is told of every call whose result is in the ledger now; nil tells nobody.
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

	life context.Context // of batches
	stop context.CancelCauseFunc
	work sync.WaitGroup
}

// New makes an executor. Close ends it.
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

// Close ends all batches, and returns when their goroutines have ended. Calls that have a key belong to Config.Effects,
// which is to be drained first.
func (e *Executor) Close() {
	e.stop(effect.ErrDraining)
	e.work.Wait()
}

// Batch is the calls of one message.
type Batch struct {
	// Project is the project's id.
	Project string
	// RequestID is the key that the keys of the calls are made of. Without one, calls end with their caller.
	RequestID string
	// Attribution is on whose behalf; no part of the content.
	Attribution *effectv1.Attribution
	// Offers are the tools, Refs what they were made of, one for one.
	Offers tool.Offers
	Refs   []*toolv1.ToolRef
	// Calls are in the order of the message.
	Calls []*toolv1.ToolCall
	// MaxOutputBytes bounds the text of a result; nil is 16 KiB, 0 and less is no bound. A tool's own bound wins.
	MaxOutputBytes *int64
	// Sandboxes are resource names by environment.
	Sandboxes map[string]string
	// Store holds entries of the run's store, JSON by key.
	Store map[string]string
	// FailFast names tools whose calls run one after another and stop after one fails.
	FailFast toolcall.FailFast
	// Timeout bounds each call; 0 is the executor's bound.
	Timeout time.Duration

	keys []effect.Key // of the calls; nil without a request id
}

// Run runs a batch. It calls emit, one call at a time, when a call begins and when its result is there; results of
// calls that run side by side come as they are done. After a result with a failure no further call begins.
//
// With a request id the batch goes on when ctx ends or emit fails. It fails when the effects cannot be kept, when the
// request id was used for other calls, and when a call is one that the caller should run.
func (e *Executor) Run(ctx context.Context, b *Batch, emit func(*toolv1.ExecuteToolsResponse) error) error {
	b.setKeys()
	for i, call := range b.Calls {
		if offer := b.Offers.Find(call.GetFunction()); offer != nil && offer.Public.GetCallerRuns() {
			return rpcerr.InvalidField(fmt.Sprintf("calls[%d]", i), "%s is run by the caller, not here", call.GetFunction())
		}
	}
	progress := e.follow(b)
	defer progress.close()
	events := make(chan *toolv1.ExecuteToolsResponse, 2*len(b.Calls)) // holds all, so that nobody waits for a caller that left
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

// context ends with the service, and with its caller unless it is detached from it.
func (e *Executor) context(ctx context.Context, detached bool) (context.Context, func()) {
	if detached {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(e.life, func() { cancel(context.Cause(e.life)) })
	return ctx, func() { unlink(); cancel(nil) }
}
