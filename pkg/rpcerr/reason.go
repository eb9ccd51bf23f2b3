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

// This file alone defines which code, which metadata and which retry delay belong to a reason: each reason has its
// constructor, which takes its metadata before the message. The meaning of a reason is documented in
// evalfleet/errors/v1/error_reason.proto, and a test compares the two. Formats may wrap a cause with %w, which is not
// sent over the wire.

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

// retryIn returns the delay before a retry.
func (e *Error) retryIn(after time.Duration) *Error {
	e.RetryAfter = after
	return e
}

// InvalidRequest is the error for a request that breaks a rule of its schema.
func InvalidRequest(format string, args ...any) *Error {
	return fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, format, args...)
}

// InvalidField is InvalidRequest for one field.
func InvalidField(path, format string, args ...any) *Error {
	description := fmt.Sprintf(format, args...)
	return InvalidRequest("%s: %s", path, description).WithField(path, "%s", description)
}

// RequestTooLarge is the error for a message that exceeds its size limit or, if field is not empty, for one field of it
// that does.
func RequestTooLarge(field string, limitBytes int, format string, args ...any) *Error {
	e := fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE, format, args...).with("limitBytes", strconv.Itoa(limitBytes))
	if field != "" {
		e = e.with("field", field).WithField(field, "at most %d bytes", limitBytes)
	}
	return e
}

// InvalidCursor is the error for a page token or a watch's cursor, in that field, that cannot be read or belongs to
// another request.
func InvalidCursor(field, format string, args ...any) *Error {
	e := fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR, format, args...)
	return e.WithField(field, "%s", e.Message)
}

// RequestIDReused is the error for a request id that was used before with other content.
func RequestIDReused(requestID, format string, args ...any) *Error {
	return fault(codes.AlreadyExists, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, format, args...).with("requestId", requestID)
}

// ResourceNotFound is the error for a named resource that does not exist.
func ResourceNotFound(name string) *Error { return NotFound(name, "no %s", name) }

// NotFound is ResourceNotFound in other words.
func NotFound(resource, format string, args ...any) *Error {
	return fault(codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND, format, args...).with("resource", resource)
}

// Unknown names within a request are faults of the request. The field is that of the message which holds the name, such
// as `name` of a ToolRef; In adds the path of the message.

// ModelNotFound is the error for a model whose provider is unknown, or unknown to its provider. Known are the valid
// names.
func ModelNotFound(model string, known []string, format string, args ...any) *Error {
	e := fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND, format, args...).with("model", model).with("known", strings.Join(known, ", "))
	return e.WithField("model", "%s", e.Message)
}

// ToolNotFound is the error for a tool name that is not registered.
func ToolNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND, "tool", "name", name, known)
}

// AgentNotFound is the error for an agent name that is not registered.
func AgentNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_AGENT_NOT_FOUND, "agent", "name", name, known)
}

// ScorerNotFound is the error for a scorer name that is not registered.
func ScorerNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "scorer", "name", name, known)
}

// MetricNotFound is the error for a metric name that is not registered.
func MetricNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "metric", "name", name, known)
}

// ReducerNotFound is the error for a reducer name that is not registered.
func ReducerNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "reducer", "", name, known)
}

// DriverNotFound is the error for a sandbox driver that is not configured.
func DriverNotFound(name string, known []string) *Error {
	return unknown(errorsv1.ErrorReason_ERROR_REASON_DRIVER_NOT_FOUND, "driver", "driver", name, known)
}

// unknown is the error for an unknown name; it lists the known ones. Thing is the kind of the name, and the key of its
// metadata. The field is empty if the name is an element of a list.
func unknown(reason errorsv1.ErrorReason, thing, field, name string, known []string) *Error {
	all := strings.Join(known, ", ")
	e := fault(codes.InvalidArgument, reason, "unknown %s %q; %s%s", thing, name, suggest.Question(name, known), suggest.Known(known)).with(thing, name).with("known", all)
	return e.WithField(field, "%s", e.Message)
}

// EffectUnknown is the error for an effect's key that was never seen, or whose result was released.
func EffectUnknown(requestID, format string, args ...any) *Error {
	return fault(codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN, format, args...).with("requestId", requestID)
}

// PrefixUnknown is the error for a prefix of messages that is not stored here.
func PrefixUnknown(hash, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PREFIX_UNKNOWN, format, args...).with("hash", hash)
}

// FileNotFound is the error for a file or folder that a sandbox does not have.
func FileNotFound(path, format string, args ...any) *Error {
	return fault(codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND, format, args...).with("path", path)
}

// ResourceExists is the error for a resource whose name exists with other content.
func ResourceExists(resource, format string, args ...any) *Error {
	return fault(codes.AlreadyExists, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_EXISTS, format, args...).with("resource", resource)
}

// EtagMismatch is the error for a resource that has changed since the caller read it.
func EtagMismatch(format string, args ...any) *Error {
	return fault(codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH, format, args...)
}

// JournalFenced is the error for a journal that has another owner under a newer epoch than the given one, or whose head
// moved.
func JournalFenced(epoch int64, format string, args ...any) *Error {
	return fault(codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_JOURNAL_FENCED, format, args...).with("epoch", strconv.FormatInt(epoch, 10))
}

// NotOwner is the error for an effect of a run that has a newer owner, of that epoch.
func NotOwner(requestID string, epoch int64, format string, args ...any) *Error {
	return fault(codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_NOT_OWNER, format, args...).with("requestId", requestID).with("epoch", strconv.FormatInt(epoch, 10))
}

// EffectCancelled is the error for an effect that was cancelled by its key, before or after it began.
func EffectCancelled(requestID, format string, args ...any) *Error {
	return fault(codes.Canceled, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED, format, args...).with("requestId", requestID)
}

// EffectIndeterminate is the error for an effect whose process died and that is not executed again.
func EffectIndeterminate(requestID, format string, args ...any) *Error {
	return fault(codes.Aborted, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE, format, args...).with("requestId", requestID)
}

// RunFinished is the error for a run or an evaluation that has ended, in that state.
func RunFinished(resource, state, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED, format, args...).with("resource", resource).with("state", state)
}

// CallNotOpen is the error for a tool call that is not running, so that it cannot be stopped.
func CallNotOpen(resource, call, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_CALL_NOT_OPEN, format, args...).with("resource", resource).with("call", call)
}

// ResourceInUse is the error for a run or an evaluation that cannot be deleted because of a resource: itself or one of
// its runs, which has not ended, or its evaluation, which is kept.
func ResourceInUse(resource, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_IN_USE, format, args...).with("resource", resource)
}

// SandboxTerminated is the error for a sandbox that was deleted, has expired or could not be created.
func SandboxTerminated(sandbox, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED, format, args...).with("sandbox", sandbox)
}

// SandboxLost is the error for a sandbox that died or whose host is gone, and the cause.
func SandboxLost(sandbox, cause, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST, format, args...).with("sandbox", sandbox).with("cause", cause)
}

// IsolationUnavailable is the error for an isolation that this machine does not support, since it lacks that part.
func IsolationUnavailable(missing, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE, format, args...).with("missing", missing)
}

// IsADirectory is the error for a path of a sandbox that is a folder although a file is required.
func IsADirectory(path, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, format, args...).with("path", path)
}

// SandboxPermission is the error for an operation that a sandbox's user may not perform on a path, or for a path that
// is not executable.
func SandboxPermission(path, format string, args ...any) *Error {
	return fault(codes.PermissionDenied, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION, format, args...).with("path", path)
}

// InvalidPath is the error for a path that is not valid for the operation.
func InvalidPath(path, format string, args ...any) *Error {
	return fault(codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH, format, args...).with("path", path)
}

// FileTooLarge is the error for a file of a sandbox that exceeds a limit.
func FileTooLarge(path string, limitBytes int64, format string, args ...any) *Error {
	return BodyTooLarge(limitBytes, format, args...).with("path", path)
}

// BodyTooLarge is the error for a body that exceeds a limit.
func BodyTooLarge(limitBytes int64, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT, format, args...).with("limitBytes", strconv.FormatInt(limitBytes, 10))
}

// FolderTooLarge is the error for a folder of a sandbox with more entries than a listing may have.
func FolderTooLarge(path string, limitEntries int, format string, args ...any) *Error {
	return DiskFull(path, format, args...).with("limitEntries", strconv.Itoa(limitEntries))
}

// DiskFull is the error for a write to a path of a sandbox that has no room left.
func DiskFull(path, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT, format, args...).with("path", path)
}

// ImageUnavailable is the error for a sandbox's image that the driver cannot get.
func ImageUnavailable(image, driver, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE, format, args...).with("image", image).with("driver", driver)
}

// SandboxSetupFailed is the error for a set-up script that failed, or did not end in time.
func SandboxSetupFailed(exitCode int, timedOut bool, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_SETUP_FAILED, format, args...).
		with("exitCode", strconv.Itoa(exitCode)).with("timedOut", strconv.FormatBool(timedOut))
}

// ProviderCredentialsRejected is the error for a provider that refused our key, with that HTTP status.
func ProviderCredentialsRejected(provider string, status int, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_CREDENTIALS_REJECTED, format, args...).upstream(provider, status)
}

// ProviderNotConfigured is the error for a provider's account that cannot be used as it is configured.
func ProviderNotConfigured(provider, account, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, format, args...).with("provider", provider).with("account", account)
}

// CapabilityUnsupported is the error for a model, tool, agent or driver that lacks a capability which the request
// needs.
func CapabilityUnsupported(capability, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, format, args...).with("capability", capability)
}

// ModelRefused is the error for a model that refused to answer, with its explanation, if the request asks for an error
// in this case.
func ModelRefused(model, why string) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_MODEL_REFUSED, "%s refused to answer: %s", model, why).
		with("model", model)
}

// ProviderRejected is the error for a request that a provider rejects permanently, with that HTTP status.
func ProviderRejected(provider string, status int, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED, format, args...).upstream(provider, status)
}

// ProviderRateLimited is the error for a provider's rate limit that outlasted our retries.
func ProviderRateLimited(provider string, status int, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED, format, args...).upstream(provider, status).retryIn(after)
}

// ProviderUnavailable is the error for a provider that is still unavailable after our retries, with that HTTP status. A
// status of 0 means that there was none.
func ProviderUnavailable(provider string, status int, after time.Duration, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE, format, args...).upstream(provider, status).retryIn(after)
}

// ProviderResponseInvalid is the error for a provider response that cannot be decoded. A status of 0 means that there
// was none.
func ProviderResponseInvalid(provider string, status int, format string, args ...any) *Error {
	return fault(codes.Internal, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RESPONSE_INVALID, format, args...).upstream(provider, status)
}

// upstream adds the metadata of a provider's failure.
func (e *Error) upstream(provider string, status int) *Error {
	e = e.with("provider", provider)
	if status != 0 {
		e = e.with("status", strconv.Itoa(status))
	}
	return e
}

// ScriptExhausted is the error for a call for which a scripted model has no answer.
func ScriptExhausted(model, sample string, turn int, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_SCRIPT_EXHAUSTED, format, args...).
		with("model", model).with("sample", sample).with("turn", strconv.Itoa(turn))
}

// EngineUnusable is the error for a container engine that is too old, is not at a usable address, or refuses the
// driver's requests.
func EngineUnusable(driver, host, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNUSABLE, format, args...).with("driver", driver).with("host", host)
}

// EngineUnavailable is the error for a container engine that does not answer. The caller may retry after that time.
func EngineUnavailable(driver, host string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE, format, args...).with("driver", driver).with("host", host).retryIn(after)
}

// ConnectionQueueFull is the error for an account whose queue for connections is full.
func ConnectionQueueFull(account string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_CONNECTION_QUEUE_FULL, format, args...).with("account", account).retryIn(after)
}

// SandboxQuota is the error for a quota that is reached. Quota names it, such as `sandboxes`; limit is its value, 0 if
// unknown.
func SandboxQuota(quota string, limit int, after time.Duration, format string, args ...any) *Error {
	e := fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA, format, args...).with("quota", quota).retryIn(after)
	if limit != 0 {
		e = e.with("limit", strconv.Itoa(limit))
	}
	return e
}

// PriceUnknown is the error for a model without a known price, if something, such as `limits.cost`, bounds dollars. How
// says in which way it is used, if another way has a price, such as `in the mode flex`; empty for any way.
func PriceUnknown(model, how, bound string) *Error {
	hint := fmt.Sprintf("give it in the configuration of modelgw, `prices: {%s: {input: 2.5, output: 10}}` in dollars per million tokens, or bound tokens instead", model)
	if how != "" {
		how, hint = " "+how, "bound tokens instead, or use the model in another way; the configuration of modelgw has prices of modes in `prices`"
	}
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN,
		"%s bounds dollars, and the price of %s%s is not known: %s", bound, model, how, hint).with("model", model)
}

// NothingScored is the error for an evaluation that ended without a score of a model.
func NothingScored(model, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_NOTHING_SCORED, format, args...).with("model", model)
}

// BudgetExhausted is the error for a spent budget of a project, an evaluation or an account.
func BudgetExhausted(scope string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED, format, args...).with("scope", scope).retryIn(after)
}

// WorkerUnavailable is the error for a worker name without a free worker, if one may connect later.
func WorkerUnavailable(kind, name string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_WORKER_UNAVAILABLE, format, args...).
		with("kind", kind).with("name", name).retryIn(after)
}

// BatchPending is the error for a call whose answer a batch of the provider has yet to bring.
func BatchPending(model, requestID string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING, format, args...).
		with("model", model).with("requestId", requestID).retryIn(after)
}

// WorkerNotConnected is the error for a worker name under which no worker is expected.
func WorkerNotConnected(kind, name, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_WORKER_NOT_CONNECTED, format, args...).
		with("kind", kind).with("name", name)
}

// WorkerFailed is the error for a worker's call that failed permanently, or whose result cannot be read.
func WorkerFailed(kind, name, format string, args ...any) *Error {
	return fault(codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_WORKER_FAILED, format, args...).with("kind", kind).with("name", name)
}

// WorkerRefused is the error for a worker's connection that exceeds a bound and ends.
func WorkerRefused(worker string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_WORKER_REFUSED, format, args...).with("worker", worker).retryIn(after)
}

// Unauthenticated is the error for a credential that is missing or unknown.
func Unauthenticated(format string, args ...any) *Error {
	return fault(codes.Unauthenticated, errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID, format, args...)
}

// ActionDenied is the error for a caller without the required permission.
func ActionDenied(permission, format string, args ...any) *Error {
	return fault(codes.PermissionDenied, errorsv1.ErrorReason_ERROR_REASON_ACTION_DENIED, format, args...).with("permission", permission)
}

// NotBuiltYet is the error for an RPC of a capability that this version does not have.
func NotBuiltYet(capability string) *Error {
	return fault(codes.Unimplemented, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET, "%s is not built yet", capability).with("capability", capability)
}

// NotBuiltField is NotBuiltYet for a field of a request.
func NotBuiltField(path, capability string) *Error {
	e := NotBuiltYet(capability)
	e.Message = path + ": " + e.Message + "; leave it out"
	return e.WithField(path, "%s is not built yet; leave it out", capability)
}

// Internal is the error for a fault of ours. The message is for the log: a client receives Hidden in its place.
func Internal(format string, args ...any) *Error {
	return fault(codes.Internal, errorsv1.ErrorReason_ERROR_REASON_INTERNAL, format, args...)
}

// Hidden is the message that a client receives for a fault of ours: where to look for the cause. Without a request id
// it names only the log.
func Hidden(requestID string) *Error {
	if requestID == "" {
		return Internal("internal error; the server's log has the cause")
	}
	return Internal("internal error; the server's log has the cause under request id %s", requestID).with("requestId", requestID)
}

// ServiceUnavailable is the error for a service that is starting or stopping, or has no room for a call.
func ServiceUnavailable(service string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE, format, args...).with("service", service).retryIn(after)
}

// BodyDamaged is the error for a stored body whose bytes no longer match the hash that names it.
func BodyDamaged(hash, format string, args ...any) *Error {
	return fault(codes.DataLoss, errorsv1.ErrorReason_ERROR_REASON_BODY_DAMAGED, format, args...).with("hash", hash)
}

// StoreUnavailable is the error for a database that cannot read or write now. Cause is `full`, `io`, `busy`, `memory`
// or `damaged`.
func StoreUnavailable(cause string, after time.Duration, format string, args ...any) *Error {
	return fault(codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, format, args...).with("cause", cause).retryIn(after)
}

// DeadlineExceeded is the error for a call that did not end within the time that the caller or the server sets for it.
func DeadlineExceeded(format string, args ...any) *Error {
	return fault(codes.DeadlineExceeded, errorsv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, format, args...)
}

// RouteNotFound is the error for a path that REST does not have.
func RouteNotFound(method, path string) *Error {
	return fault(codes.NotFound, errorsv1.ErrorReason_ERROR_REASON_ROUTE_NOT_FOUND, "no call has the path %s; /openapi.json lists those that there are", path).
		with("method", method).with("path", path)
}

// MethodNotAllowed is the error for a method that a REST path does not have.
func MethodNotAllowed(method, path string) *Error {
	return fault(codes.Unimplemented, errorsv1.ErrorReason_ERROR_REASON_METHOD_NOT_ALLOWED, "%s is not called with %s; /openapi.json says with what", path, method).
		with("method", method).with("path", path)
}
