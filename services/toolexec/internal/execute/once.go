package execute

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/sandbox"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// releaseTime bounds the request that releases the results of a call's commands.
const releaseTime = 10 * time.Second

// work produces the result of call i of a batch.
type work func(ctx context.Context, b *Batch, i int, again bool, access *sandbox.Access) (*toolv1.ToolResult, error)

// once returns the result of call i: that of do or, if the key has a stored result, the stored one. The wait ends with
// ctx, the work with stage.
func (e *Executor) once(ctx, stage context.Context, b *Batch, i int, do work) (*toolv1.ToolResult, error) {
	key := b.key(i)
	if key.IsZero() {
		return do(stage, b, i, false, sandbox.NewAccess(e.sandboxes, b.Sandboxes, nil, b.Attribution))
	}
	hash, err := b.hash(i)
	if err != nil {
		return nil, err
	}
	access := sandbox.NewAccess(e.sandboxes, b.Sandboxes, func(n int) string { return execKey(key.ID, n) }, b.Attribution)
	request := effect.Request{Key: key, Hash: hash, Reissue: repeatable(b, i), Kept: func() { e.kept(key) }}
	if request.Unique = (effect.Key{Project: b.Project, ID: b.RequestID}).OfRun(b.Attribution.GetRun()); request.Unique {
		request.Epoch = b.Attribution.GetOwnerEpoch()
	}
	kept, err := e.effects.Do(ctx, request, func(ctx context.Context, attempt effect.Attempt) ([]byte, error) {
		failpoint.Hit("toolexec/after-claim")
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(stage, func() { cancel(context.Cause(stage)) })()
		result, err := do(ctx, b, i, attempt.Reissued > 0, access)
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errSibling) {
			return nil, cause // cancelled or cut short: a partial result is no result
		}
		if err != nil {
			return nil, err
		}
		if attempt.Reissued > 0 {
			result.Timing.Attempts, result.Timing.Reissued = int32(1+attempt.Reissued), true
		}
		return proto.Marshal(result)
	})
	switch {
	case errors.Is(err, effect.ErrCancelled):
		return cancelled(b.Calls[i]), nil
	case errors.Is(err, effect.ErrIndeterminate):
		return indeterminate(b.Calls[i]), nil
	case err != nil:
		return nil, err
	}
	failpoint.Hit("toolexec/after-result")
	e.release(ctx, access)
	return decode(kept.Body)
}

// repeatable reports whether a call may be retried if the process that ran it died. For a call that a worker has, the
// worker's definition of the tool decides.
func repeatable(b *Batch, i int) bool {
	offer := b.Offers.Find(b.Calls[i].GetFunction())
	return offer == nil || offer.Public.GetWorker() != "" || offer.Public.GetOnUnknown() == toolv1.OnUnknown_ON_UNKNOWN_RETRY
}

// release releases the results of a call's commands, after the call's own result was stored. It does not block.
func (e *Executor) release(ctx context.Context, access *sandbox.Access) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	e.work.Go(func() {
		defer cancel()
		defer context.AfterFunc(e.life, cancel)() //nolint:contextcheck // It ends with the service, not with its caller.
		if err := access.Release(ctx); err != nil {
			e.log.DebugContext(ctx, "results of commands stay with their sandbox", "error", err)
		}
	})
}

// Attach waits for a call in flight and returns its result, or the result of one that is done.
func (e *Executor) Attach(ctx context.Context, project, requestID string, call *toolv1.CallRef) (*toolv1.ToolResult, error) {
	kept, err := e.effects.Attach(ctx, callKey(project, requestID, call))
	if err != nil {
		return nil, err
	}
	return decode(kept.Body)
}

// Cancel stops calls, and prevents unknown ones from beginning. It returns the calls that had ended before.
func (e *Executor) Cancel(ctx context.Context, project, requestID string, calls []*toolv1.CallRef) (done []*toolv1.CallRef, err error) {
	for i, key := range callKeys(project, requestID, calls) {
		ended, err := e.effects.Cancel(ctx, key)
		if err != nil {
			return nil, err
		}
		if ended {
			done = append(done, calls[i])
		}
	}
	return done, nil
}

// Release deletes the results of calls that the caller has stored.
func (e *Executor) Release(ctx context.Context, project, requestID string, calls []*toolv1.CallRef) error {
	return e.effects.Release(ctx, callKeys(project, requestID, calls)...)
}

// ReleaseRuns deletes the results of all calls of runs of a project. Runs are given by id.
func (e *Executor) ReleaseRuns(ctx context.Context, project string, runs []string) error {
	return e.effects.ReleaseRuns(ctx, project, runs...)
}

func decode(body []byte) (*toolv1.ToolResult, error) {
	result := &toolv1.ToolResult{}
	if err := proto.Unmarshal(body, result); err != nil {
		return nil, rpcerr.Internal("a kept result cannot be read: %w", err)
	}
	return result, nil
}

// cancelled is the result of a call that was cancelled by its key. The calls in parallel continue.
func cancelled(call *toolv1.ToolCall) *toolv1.ToolResult {
	result := &toolv1.ToolResult{CallId: call.GetId(), Function: call.GetFunction(), ArgumentsJson: call.GetArgumentsJson()}
	showError(result, &tool.Error{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, Message: "the call was cancelled"}, defaultTextBytes)
	return result
}

// indeterminate is the result of a call that may have taken effect and must not be repeated.
func indeterminate(call *toolv1.ToolCall) *toolv1.ToolResult {
	return &toolv1.ToolResult{
		CallId:        call.GetId(),
		Function:      call.GetFunction(),
		ArgumentsJson: call.GetArgumentsJson(),
		Failure:       lost(errors.New("the process that ran the call died, and the tool allows no second run, so it is not known whether the call took effect")),
	}
}

func lost(why error) *toolv1.ToolFailure {
	return &toolv1.ToolFailure{Reason: rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE), Message: why.Error()}
}
