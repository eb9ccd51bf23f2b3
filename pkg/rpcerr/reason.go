package rpcerr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// Here is the one place that says which code, which facts and which time to try again go with a reason: each reason has
// its constructor, which asks for its facts before the message. What a reason means to callers is said in
// evalfleet/errors/v1/error_reason.proto, and a test holds the two against one another. Formats may wrap a cause with
// %w, which stays on this side of the wire.

// fault makes an error of a kind.
func fault(code codes.Code, reason errorsv1.ErrorReason, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Reason: reason, Message: err.Error(), cause: errors.Unwrap(err)}
}

// with adds a fact.
func (e *Error) with(key, value string) *Error {
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	e.Metadata[key] = value
	return e
}

// retryIn says when to try again.
func (e *Error) retryIn(after time.Duration) *Error {
	e.RetryAfter = after
	return e
}

// InvalidRequest says that a request breaks a rule of its schema.
func InvalidRequest(format string, args ...any) *Error {
	return fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, format, args...)
}

// InvalidField is InvalidRequest for one field.
func InvalidField(path, format string, args ...any) *Error {
	description := fmt.Sprintf(format, args...)
	return InvalidRequest("%s: %s", path, description).WithField(path, "%s", description)
}

// RequestTooLarge says that a message or, where it is not empty, one field of it is over its size.
func RequestTooLarge(field string, limitBytes int, format string, args ...any) *Error {
	e := fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE, format, args...).with("limitBytes", strconv.Itoa(limitBytes))
	if field != "" {
		e = e.with("field", field).WithField(field, "at most %d bytes", limitBytes)
	}
	return e
}

// InvalidCursor says that a page token or a watch's cursor, in that field, cannot be read or belongs to another
// request.
func InvalidCursor(field, format string, args ...any) *Error {
	e := fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR, format, args...)
	return e.WithField(field, "%s", e.Message)
}

// RequestIDReused says that a request id came with other content before.
func RequestIDReused(requestID, format string, args ...any) *Error {
	return fault(codes.AlreadyExists, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, format, args...).with("requestId", requestID)
}

// ResourceNotFound says that a named resource does not exist.
func ResourceNotFound(name string) *Error { return NotFound(name, "no %s", name) }

// NotFound is ResourceNotFound in other words.
func NotFound(resource, format string, args ...any) *Error {
	return fault(codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND, format, args...).with("resource", resource)
}

// Names within a request that nothing is known of are faults of the request. The field is that of the message which
// holds the name, such as `name` of a ToolRef; In says where the message stands.

// ModelNotFound says that a model's provider is not known, or does not know the model. Known are the names that would
// do.
func ModelNotFound(model string, known []string, format string, args ...any) *Error {
	e := fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND, format, args...).with("model", model).with("known", strings.Join(known, ", "))
	return e.WithField("model", "%s", e.Message)
}

// ToolNotFound says that no tool of that name is registered.
func ToolNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND, "tool", "name", name, known)
}

// AgentNotFound says that no agent of that name is registered.
func AgentNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_AGENT_NOT_FOUND, "agent", "name", name, known)
}

// ScorerNotFound says that no scorer of that name is registered.
func ScorerNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "scorer", "name", name, known)
}

// MetricNotFound says that no metric of that name is registered.
func MetricNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "metric", "name", name, known)
}

// ReducerNotFound says that no reducer of that name is registered.
func ReducerNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "reducer", "", name, known)
}

// DriverNotFound says that no sandbox driver of that name is configured.
func DriverNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_DRIVER_NOT_FOUND, "driver", "driver", name, known)
}

// unknown says that nothing of that name is known, and names what is. Thing is what it would be; it is also the key of
// the fact. The field is empty where the name is an element of a list.
func unknown(reason errorsv1.ErrorReason, thing, field, name string, known []string) *Error {
	all := strings.Join(known, ", ")
	e := fault(codes.InvalidArgument, reason, "unknown %s %q; %sknown: %s", thing, name, suggest.Question(name, known), all).with(thing, name).with("known", all)
	return e.WithField(field, "%s", e.Message)
}

// EffectUnknown says that a key was never seen, or that its result was released.
func EffectUnknown(requestID, format string, args ...any) *Error {
	return fault(codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, format, args...).with("requestId", requestID)
}

// PrefixUnknown says that a prefix of messages is not held here.
func PrefixUnknown(hash, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PREFIX_UNKNOWN, format, args...).with("hash", hash)
}

// FileNotFound says that a sandbox has no such file or folder.
func FileNotFound(path, format string, args ...any) *Error {
	return fault(codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND, format, args...).with("path", path)
}

// ResourceExists says that a resource of that name exists with other content.
func ResourceExists(resource, format string, args ...any) *Error {
	return fault(codes.AlreadyExists, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_EXISTS, format, args...).with("resource", resource)
}

// EtagMismatch says that a resource has changed since the caller read it.
func EtagMismatch(format string, args ...any) *Error {
	return fault(codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH, format, args...)
}

// JournalFenced says that a journal is owned by another under a newer epoch than the given one, or that its head moved.
func JournalFenced(epoch int64, format string, args ...any) *Error {
	return fault(codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_JOURNAL_FENCED, format, args...).with("epoch", strconv.FormatInt(epoch, 10))
}

// NotOwner says that the run which asks for an effect has another owner since, of that epoch.
func NotOwner(requestID string, epoch int64, format string, args ...any) *Error {
	return fault(codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_NOT_OWNER, format, args...).with("requestId", requestID).with("epoch", strconv.FormatInt(epoch, 10))
}

// EffectCancelled says that an effect was cancelled by its key, before or after it began.
func EffectCancelled(requestID, format string, args ...any) *Error {
	return fault(codes.Canceled, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED, format, args...).with("requestId", requestID)
}

// EffectIndeterminate says that the process which ran an effect died and that it is not run again.
func EffectIndeterminate(requestID, format string, args ...any) *Error {
	return fault(codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE, format, args...).with("requestId", requestID)
}

// RunFinished says that a run or an evaluation has ended, in that state.
func RunFinished(resource, state, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED, format, args...).with("resource", resource).with("state", state)
}

// CallNotOpen says that a tool call of a run does not run, so that it cannot be stopped.
func CallNotOpen(resource, call, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_CALL_NOT_OPEN, format, args...).with("resource", resource).with("call", call)
}

// ResourceInUse says that a run or an evaluation cannot be deleted because of a resource: itself or one of its runs
// that has not ended, or its evaluation, which is kept.
func ResourceInUse(resource, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_IN_USE, format, args...).with("resource", resource)
}

// SandboxTerminated says that a sandbox was deleted, has expired or could not be made.
func SandboxTerminated(sandbox, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED, format, args...).with("sandbox", sandbox)
}

// SandboxLost says that a sandbox died or that its host is gone, and of what.
func SandboxLost(sandbox, cause, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST, format, args...).with("sandbox", sandbox).with("cause", cause)
}

// IsolationUnavailable says that this machine cannot isolate as asked, for want of that part.
func IsolationUnavailable(missing, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE, format, args...).with("missing", missing)
}

// IsADirectory says that a path of a sandbox is a folder where a file is wanted.
func IsADirectory(path, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, format, args...).with("path", path)
}

// SandboxPermission says that a sandbox's user may not do that to a path, or that it is not executable.
func SandboxPermission(path, format string, args ...any) *Error {
	return fault(codes.PermissionDenied, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION, format, args...).with("path", path)
}

// InvalidPath says that a path cannot be what is asked for.
func InvalidPath(path, format string, args ...any) *Error {
	return fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH, format, args...).with("path", path)
}

// FileTooLarge says that a file of a sandbox is over a limit.
func FileTooLarge(path string, limitBytes int64, format string, args ...any) *Error {
	return BodyTooLarge(limitBytes, format, args...).with("path", path)
}

// BodyTooLarge says that what is to be kept is over a limit.
func BodyTooLarge(limitBytes int64, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT, format, args...).with("limitBytes", strconv.FormatInt(limitBytes, 10))
}

// FolderTooLarge says that a folder of a sandbox has more entries than are listed.
func FolderTooLarge(path string, limitEntries int, format string, args ...any) *Error {
	return DiskFull(path, format, args...).with("limitEntries", strconv.Itoa(limitEntries))
}

// DiskFull says that a sandbox has no room left for what is written to a path.
func DiskFull(path, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT, format, args...).with("path", path)
}

// ImageUnavailable says that a driver cannot have the image that a sandbox is to be made from.
func ImageUnavailable(image, driver, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE, format, args...).with("image", image).with("driver", driver)
}

// SandboxSetupFailed says that a set-up script failed, or did not end in time.
func SandboxSetupFailed(exitCode int, timedOut bool, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_SETUP_FAILED, format, args...).
		with("exitCode", strconv.Itoa(exitCode)).with("timedOut", strconv.FormatBool(timedOut))
}

// ProviderCredentialsRejected says that a provider refused our key, with that HTTP status.
func ProviderCredentialsRejected(provider string, status int, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_CREDENTIALS_REJECTED, format, args...).upstream(provider, status)
}

// ProviderNotConfigured says that a provider's account cannot be used as it is configured.
func ProviderNotConfigured(provider, account, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, format, args...).with("provider", provider).with("account", account)
}

// CapabilityUnsupported says that a model, tool, agent or driver lacks what a request needs.
func CapabilityUnsupported(capability, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, format, args...).with("capability", capability)
}

// ModelRefused says that a model refused to answer, and why, where the request asks for an error then.
func ModelRefused(model, why string) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_MODEL_REFUSED, "%s refused to answer: %s", model, why).
		with("model", model)
}

// ProviderRejected says that a provider rejects a request for good, with that HTTP status.
func ProviderRejected(provider string, status int, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED, format, args...).upstream(provider, status)
}

// ProviderRateLimited says that a provider's rate limit held through our retries.
func ProviderRateLimited(provider string, status int, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED, format, args...).upstream(provider, status).retryIn(after)
}

// ProviderUnavailable says that a provider is away after our retries, with that HTTP status; 0 where none came.
func ProviderUnavailable(provider string, status int, after time.Duration, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE, format, args...).upstream(provider, status).retryIn(after)
}

// ProviderResponseInvalid says that a provider's answer cannot be read; 0 is no status.
func ProviderResponseInvalid(provider string, status int, format string, args ...any) *Error {
	return fault(codes.Internal, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RESPONSE_INVALID, format, args...).upstream(provider, status)
}

// upstream adds what a provider's failure is known by.
func (e *Error) upstream(provider string, status int) *Error {
	e = e.with("provider", provider)
	if status != 0 {
		e = e.with("status", strconv.Itoa(status))
	}
	return e
}

// ScriptExhausted says that a scripted model has no answer for a call.
func ScriptExhausted(model, sample string, turn int, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_SCRIPT_EXHAUSTED, format, args...).
		with("model", model).with("sample", sample).with("turn", strconv.Itoa(turn))
}

// EngineUnusable says that the container engine of a driver is too old, is not where it can be used, or refuses what it
// is asked.
func EngineUnusable(driver, host, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNUSABLE, format, args...).with("driver", driver).with("host", host)
}

// EngineUnavailable says that the container engine of a driver does not answer: it may be there again after that time.
func EngineUnavailable(driver, host string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE, format, args...).with("driver", driver).with("host", host).retryIn(after)
}

// ConnectionQueueFull says that too many calls wait for an account's connections.
func ConnectionQueueFull(account string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL, format, args...).with("account", account).retryIn(after)
}

// SandboxQuota says that no more of something may be there now: quota names it, such as `sandboxes`, limit is how many;
// 0 is not known.
func SandboxQuota(quota string, limit int, after time.Duration, format string, args ...any) *Error {
	e := fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA, format, args...).with("quota", quota).retryIn(after)
	if limit != 0 {
		e = e.with("limit", strconv.Itoa(limit))
	}
	return e
}

// PriceUnknown says that dollars are bounded by something, such as `limits.cost`, and that a model's price is not
// known.
func PriceUnknown(model, bound string) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN,
		"%s bounds dollars, and the price of %s is not known: give it in the configuration of modelgw, `prices: {%s: {input: 2.5, output: 10}}` in dollars per million tokens, or bound tokens instead",
		bound, model, model).with("model", model)
}

// NothingScored says that an evaluation ended without a score of a model.
func NothingScored(model, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_NOTHING_SCORED, format, args...).with("model", model)
}

// BudgetExhausted says that the budget of a project, an evaluation or an account is spent.
func BudgetExhausted(scope string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED, format, args...).with("scope", scope).retryIn(after)
}

// WorkerUnavailable says that no worker of that name is free now, while one may come.
func WorkerUnavailable(kind, name string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_WORKER_UNAVAILABLE, format, args...).
		with("kind", kind).with("name", name).retryIn(after)
}

// WorkerNotConnected says that no worker of that name is expected.
func WorkerNotConnected(kind, name, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_WORKER_NOT_CONNECTED, format, args...).
		with("kind", kind).with("name", name)
}

// WorkerFailed says that a worker's call failed for good, or that its answer cannot be read.
func WorkerFailed(kind, name, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_WORKER_FAILED, format, args...).with("kind", kind).with("name", name)
}

// WorkerRefused says that the connection of a worker is over a bound and ends.
func WorkerRefused(worker string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_WORKER_REFUSED, format, args...).with("worker", worker).retryIn(after)
}

// Unauthenticated says that the caller's credential is missing or not known.
func Unauthenticated(format string, args ...any) *Error {
	return fault(codes.Unauthenticated, errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID, format, args...)
}

// ActionDenied says that the caller lacks a permission.
func ActionDenied(permission, format string, args ...any) *Error {
	return fault(codes.PermissionDenied, errorsv1.ErrorReason_ERROR_REASON_ACTION_DENIED, format, args...).with("permission", permission)
}

// NotBuiltYet says that an RPC belongs to a capability that this version does not have.
func NotBuiltYet(capability string) *Error {
	return fault(codes.Unimplemented, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET, "%s is not built yet", capability).with("capability", capability)
}

// NotBuiltField is NotBuiltYet for a field of a request.
func NotBuiltField(path, capability string) *Error {
	e := NotBuiltYet(capability)
	e.Message = path + ": " + e.Message + "; leave it out"
	return e.WithField(path, "%s is not built yet; leave it out", capability)
}

// Internal says that we are at fault. The message is for the log: a client sees Hidden in its place.
func Internal(format string, args ...any) *Error {
	return fault(codes.Internal, errorsv1.ErrorReason_ERROR_REASON_INTERNAL, format, args...)
}

// Hidden is what a client sees of a fault of ours: where to look for the cause. Without a request id the log is all
// there is to name.
func Hidden(requestID string) *Error {
	if requestID == "" {
		return Internal("internal error; the server's log has the cause")
	}
	return Internal("internal error; the server's log has the cause under request id %s", requestID).with("requestId", requestID)
}

// ServiceUnavailable says that a service is starting or stopping.
func ServiceUnavailable(service string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE, format, args...).with("service", service).retryIn(after)
}

// BodyDamaged says that the bytes of a stored body no longer have the hash that names it.
func BodyDamaged(hash, format string, args ...any) *Error {
	return fault(codes.DataLoss, errorsv1.ErrorReason_ERROR_REASON_BODY_DAMAGED, format, args...).with("hash", hash)
}

// StoreUnavailable says that a database takes or gives nothing now. Cause is `full`, `io`, `busy`, `memory` or
// `damaged`.
func StoreUnavailable(cause string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, format, args...).with("cause", cause).retryIn(after)
}

// DeadlineExceeded says that a call did not end within the time that it, or the server, sets for it.
func DeadlineExceeded(format string, args ...any) *Error {
	return fault(codes.DeadlineExceeded, errorsv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, format, args...)
}

// RouteNotFound says that REST has no such path.
func RouteNotFound(method, path string) *Error {
	return fault(codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_ROUTE_NOT_FOUND, "no call has the path %s; /openapi.json lists those that there are", path).
		with("method", method).with("path", path)
}

// MethodNotAllowed says that REST has a path, and not with this method.
func MethodNotAllowed(method, path string) *Error {
	return fault(codes.Unimplemented, errorsv1.ErrorReason_ERROR_REASON_METHOD_NOT_ALLOWED, "%s is not called with %s; /openapi.json says with what", path, method).
		with("method", method).with("path", path)
}
