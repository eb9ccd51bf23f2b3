package execute

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/sandbox"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// maxLoggedBytes bounds the text of an error in the log, which may come from a worker.
const maxLoggedBytes = 1000

// perform checks one call and runs it. It fails if the call could not begin, or has to be left to a successor.
func (e *Executor) perform(ctx context.Context, b *Batch, i int, again bool, access *sandbox.Access) (*toolv1.ToolResult, error) {
	call := b.Calls[i]
	begun := time.Now()
	ctx, span := beginSpan(ctx, call)
	result := &toolv1.ToolResult{CallId: call.GetId(), Function: call.GetFunction(), Index: int32(i)}
	defer endSpan(ctx, span, result)
	offer, arguments, fault := Check(b.Offers, call)
	if fault == nil {
		result.ArgumentsJson = string(arguments)
		queued, err := e.call(ctx, b, i, again, offer, access, result)
		if err != nil {
			return nil, err
		}
		result.Timing = timing(begun, queued, result)
		if again {
			countEarlier(result.Timing, result.GetSandboxActions())
		}
		return result, nil
	}
	showError(result, fault, defaultTextBytes)
	result.Timing = timing(begun, 0, result)
	return result, nil
}

// Check finds the tool of a call and checks the call's arguments. It returns the arguments in the tool's form, or the
// error for the model.
func Check(offers tool.Offers, call *toolv1.ToolCall) (*tool.Offer, json.RawMessage, *tool.Error) {
	if call.GetParseError() != "" {
		return nil, nil, tool.Parsingf("%s", call.GetParseError())
	}
	offer := offers.Find(call.GetFunction())
	if offer == nil {
		return nil, nil, tool.Parsingf("there is no tool %s; there are: %s", call.GetFunction(), strings.Join(offers.Names(), ", "))
	}
	arguments, fault := offer.Check(json.RawMessage(call.GetArgumentsJson()))
	return offer, arguments, fault
}

// call runs the tool and writes its outcome into result. It returns how long the call was queued before work on it
// began.
func (e *Executor) call(ctx context.Context, b *Batch, i int, again bool, offer *tool.Offer, access *sandbox.Access, result *toolv1.ToolResult) (queued time.Duration, err error) {
	store := tool.NewStore(offer.Public.GetStoreKeys(), b.Store)
	within := ctx
	if timeout := cmp.Or(b.Timeout, e.timeout); timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if offer.Public.GetWorker() != "" {
		defer e.progress.Clear(b.place(i))
	}
	given, err := e.protected(within, offer, &tool.Call{
		ID: result.GetCallId(), Attribution: b.Attribution, Key: effect.Key{Project: b.Project, ID: b.key(i).ID}, Again: again,
		Arguments: json.RawMessage(result.GetArgumentsJson()),
		Sandbox:   func(environment string) (tool.Sandbox, error) { return access.Sandbox(offer.Environment(environment)) },
		Store:     store,
		Progress:  e.progressReporter(b, i),
	})
	bound := textBound(offer.Public.MaxOutputBytes, b.MaxOutputBytes)
	switch told, forModel := tool.Explain(offer.Name(), err); {
	case err == nil:
		showResult(result, given, bound)
		queued = given.Queued
	case effect.IsNotStarted(err), errors.Is(err, effect.ErrDraining):
		return 0, err
	case errors.Is(err, tool.ErrIndeterminate):
		result.Failure = lost(err)
	case errors.Is(context.Cause(ctx), errSibling):
		stopped(result)
	case ctx.Err() != nil: // cancelled, left by its caller, or cut short: the result is not used
	case forModel:
		showError(result, told, bound)
	default:
		result.Failure = failure(offer.Name(), b.RequestID, err)
		e.log.WarnContext(ctx, "a tool call ends its run", "tool", offer.Name(), "call", result.GetCallId(), "request_id", b.RequestID, "reason", result.GetFailure().GetReason(), "error", headtail.Cut(err.Error(), maxLoggedBytes))
	}
	result.StoreChanges = store.Changes()
	result.SandboxActions = access.Actions()
	return queued, nil
}

// errPanic is a fault of a tool's code.
var errPanic = errors.New("the tool panicked")

// protected calls the tool and converts a panic into an error.
func (e *Executor) protected(ctx context.Context, offer *tool.Offer, call *tool.Call) (result *tool.Result, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			e.log.ErrorContext(ctx, "a tool panicked", "tool", offer.Name(), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return offer.Call(ctx, call)
}

// showResult writes a result for the model.
func showResult(result *toolv1.ToolResult, given *tool.Result, bound int64) {
	content, cut, fault := bounded(result.GetFunction(), given.Content, given.OmittedBytes, bound)
	if fault != nil {
		showError(result, fault, bound)
		return
	}
	result.Content, result.Truncation = content, cut
}

// showError writes an error for the model, with the output so far.
func showError(result *toolv1.ToolResult, fault *tool.Error, bound int64) {
	content, cut, _ := bounded(result.GetFunction(), tool.Text(fault.Output).Content, fault.OmittedBytes, bound)
	result.Content, result.Truncation, result.Error = content, cut, fault.Proto()
}

// stopped writes the result of a call that was stopped because a parallel call failed.
func stopped(result *toolv1.ToolResult) {
	showError(result, &tool.Error{
		Type:    toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED,
		Message: "the call was stopped because a call beside it failed",
	}, defaultTextBytes)
	result.Notes = append(result.Notes, fmt.Sprintf("%s was stopped: a call beside it failed", result.GetFunction()))
}

// notExecuted is the result of a call whose tool fails fast and has failed before in the same message.
func notExecuted(_ context.Context, b *Batch, i int, _ bool, _ *sandbox.Access) (*toolv1.ToolResult, error) {
	call := b.Calls[i]
	result := &toolv1.ToolResult{CallId: call.GetId(), Function: call.GetFunction(), Index: int32(i), ArgumentsJson: call.GetArgumentsJson()}
	result.Timing = timing(time.Now(), 0, result)
	skipped := toolcall.Skipped(call.GetFunction())
	showError(result, &tool.Error{Type: skipped.GetType(), Message: skipped.GetMessage()}, defaultTextBytes)
	result.Notes = []string{toolcall.SkippedNote(call.GetFunction())}
	return result, nil
}

// failure returns the operator's view of an error that ends the run.
func failure(function, requestID string, err error) *toolv1.ToolFailure {
	reason, message := rpcerr.Reason(err), err.Error()
	if reason == errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED || reason == errorsv1.ErrorReason_ERROR_REASON_INTERNAL {
		reason, message = errorsv1.ErrorReason_ERROR_REASON_INTERNAL, rpcerr.ToStatusUnder(err, requestID).Message()
	}
	return &toolv1.ToolFailure{Reason: rpcerr.ReasonName(reason), Message: "tool " + function + ": " + message}
}
