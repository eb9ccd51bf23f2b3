"""Exceptions by reason. Written by stubs.py from evalfleet/errors/v1/error_reason.proto."""

from evalfleet._error import EvalfleetError

__all__ = [
    "ActionDenied",
    "AgentNotFound",
    "BatchPending",
    "BodyDamaged",
    "BudgetExhausted",
    "CallNotOpen",
    "CapabilityUnsupported",
    "ConnectionQueueFull",
    "DeadlineExceeded",
    "DriverNotFound",
    "EffectCancelled",
    "EffectIndeterminate",
    "EffectUnknown",
    "EngineUnavailable",
    "EngineUnusable",
    "EtagMismatch",
    "FileNotFound",
    "ImageUnavailable",
    "Internal",
    "InvalidCursor",
    "InvalidPath",
    "InvalidRequest",
    "IsADirectory",
    "IsolationUnavailable",
    "JournalFenced",
    "MethodNotAllowed",
    "ModelNotFound",
    "ModelRefused",
    "NotBuiltYet",
    "NotOwner",
    "NotUtf8",
    "NothingScored",
    "OutputLimit",
    "PrefixUnknown",
    "PriceUnknown",
    "ProviderCredentialsRejected",
    "ProviderNotConfigured",
    "ProviderRateLimited",
    "ProviderRejected",
    "ProviderResponseInvalid",
    "ProviderUnavailable",
    "RequestIdReused",
    "RequestTooLarge",
    "ResourceExists",
    "ResourceInUse",
    "ResourceNotFound",
    "RouteNotFound",
    "RunFinished",
    "SandboxLost",
    "SandboxPermission",
    "SandboxQuota",
    "SandboxSetupFailed",
    "SandboxTerminated",
    "ScorerNotFound",
    "ScriptExhausted",
    "ServiceUnavailable",
    "StoreUnavailable",
    "TokenInvalid",
    "ToolNotFound",
    "WorkerFailed",
    "WorkerNotConnected",
    "WorkerRefused",
    "WorkerUnavailable",
]


class InvalidRequest(EvalfleetError):
    """The request breaks a rule of its schema."""

    reason = "INVALID_REQUEST"


class RequestTooLarge(EvalfleetError):
    """The message is larger than 4 MiB, or a field exceeds its documented size."""

    reason = "REQUEST_TOO_LARGE"


class InvalidCursor(EvalfleetError):
    """A page token or watch cursor cannot be read, or belongs to another request."""

    reason = "INVALID_CURSOR"


class RequestIdReused(EvalfleetError):
    """The same request_id was used with other content."""

    reason = "REQUEST_ID_REUSED"


class ResourceNotFound(EvalfleetError):
    """No resource of that name."""

    reason = "RESOURCE_NOT_FOUND"


class ModelNotFound(EvalfleetError):
    """No provider of that name, or the provider knows no such model."""

    reason = "MODEL_NOT_FOUND"


class ToolNotFound(EvalfleetError):
    """No tool of that name is registered."""

    reason = "TOOL_NOT_FOUND"


class AgentNotFound(EvalfleetError):
    """No agent or solver of that name is registered."""

    reason = "AGENT_NOT_FOUND"


class ScorerNotFound(EvalfleetError):
    """No scorer, metric or reducer of that name is registered."""

    reason = "SCORER_NOT_FOUND"


class DriverNotFound(EvalfleetError):
    """No sandbox driver of that name is configured."""

    reason = "DRIVER_NOT_FOUND"


class EffectUnknown(EvalfleetError):
    """No effect is known under the key: it was never used, or its result was released. Attach returns it, and so does a
    request that comes after the release of the key or of its run. Nothing is started."""

    reason = "EFFECT_UNKNOWN"


class PrefixUnknown(EvalfleetError):
    """A request refers to a prefix of messages that is not stored here. Send all messages, or extend a prefix by them
    in parts."""

    reason = "PREFIX_UNKNOWN"


class FileNotFound(EvalfleetError):
    """A file or folder does not exist in the sandbox."""

    reason = "FILE_NOT_FOUND"


class ResourceExists(EvalfleetError):
    """A resource of that name exists with other content."""

    reason = "RESOURCE_EXISTS"


class EtagMismatch(EvalfleetError):
    """The resource has changed since it was read."""

    reason = "ETAG_MISMATCH"


class JournalFenced(EvalfleetError):
    """Another replica owns the journal under a newer epoch than the given one, or its head has moved."""

    reason = "JOURNAL_FENCED"


class NotOwner(EvalfleetError):
    """The run of the effect has had another owner since, under a newer epoch than the request's: the caller drops the
    run, or owns it under a still newer epoch."""

    reason = "NOT_OWNER"


class EffectCancelled(EvalfleetError):
    """The effect was cancelled, before or after it began."""

    reason = "EFFECT_CANCELLED"


class EffectIndeterminate(EvalfleetError):
    """The process that ran the effect died, and its policy forbids a repetition, so that its outcome is unknown."""

    reason = "EFFECT_INDETERMINATE"


class ResourceInUse(EvalfleetError):
    """A run or an evaluation that has not ended cannot be deleted, nor a run whose evaluation exists; metadata names
    the obstacle."""

    reason = "RESOURCE_IN_USE"


class CallNotOpen(EvalfleetError):
    """The tool call to be stopped does not run: it has not begun, or has ended."""

    reason = "CALL_NOT_OPEN"


class RunFinished(EvalfleetError):
    """The run, eval or sandbox has ended."""

    reason = "RUN_FINISHED"


class SandboxTerminated(EvalfleetError):
    """The sandbox was deleted or has expired."""

    reason = "SANDBOX_TERMINATED"


class SandboxLost(EvalfleetError):
    """The sandbox died or its host is gone."""

    reason = "SANDBOX_LOST"


class IsolationUnavailable(EvalfleetError):
    """This machine lacks a part of the requested isolation; metadata names the part, and the message the remedy."""

    reason = "ISOLATION_UNAVAILABLE"


class IsADirectory(EvalfleetError):
    """The path is a directory, and a file is required."""

    reason = "IS_A_DIRECTORY"


class SandboxPermission(EvalfleetError):
    """The sandbox's user lacks the permission, or the program is not executable."""

    reason = "SANDBOX_PERMISSION"


class InvalidPath(EvalfleetError):
    """The path is neither a file nor a folder, or contains a NUL, or is too long."""

    reason = "INVALID_PATH"


class OutputLimit(EvalfleetError):
    """A file, a body or a list of files exceeds its limit, or the disk of a sandbox is full."""

    reason = "OUTPUT_LIMIT"


class NotUtf8(EvalfleetError):
    """The file is not valid UTF-8, and text was requested."""

    reason = "NOT_UTF8"


class ImageUnavailable(EvalfleetError):
    """The image for a sandbox does not exist, cannot be fetched, or is for another machine."""

    reason = "IMAGE_UNAVAILABLE"


class SandboxSetupFailed(EvalfleetError):
    """The set-up script of a sandbox failed or did not end in time, so that the sandbox was not created. The message
    contains its output."""

    reason = "SANDBOX_SETUP_FAILED"


class NothingScored(EvalfleetError):
    """An evaluation ended without a score of one of its models: the reason of an evaluation's error."""

    reason = "NOTHING_SCORED"


class ProviderCredentialsRejected(EvalfleetError):
    """The provider refused the account's key."""

    reason = "PROVIDER_CREDENTIALS_REJECTED"


class ProviderNotConfigured(EvalfleetError):
    """The provider's account is not configured, or lacks a key or an address."""

    reason = "PROVIDER_NOT_CONFIGURED"


class CapabilityUnsupported(EvalfleetError):
    """The model, tool, agent or driver lacks a feature that the request needs."""

    reason = "CAPABILITY_UNSUPPORTED"


class ProviderRejected(EvalfleetError):
    """The provider rejected the request permanently (a 4xx other than 408 and 429)."""

    reason = "PROVIDER_REJECTED"


class ModelRefused(EvalfleetError):
    """The model refused to answer, and the request's configuration makes that an error (`fail_on_refusal`)."""

    reason = "MODEL_REFUSED"


class ProviderRateLimited(EvalfleetError):
    """The provider's rate limit outlasted the retries that the request allows."""

    reason = "PROVIDER_RATE_LIMITED"


class ProviderUnavailable(EvalfleetError):
    """The provider is still unavailable (5xx, reset, overloaded, time-out) after the retries."""

    reason = "PROVIDER_UNAVAILABLE"


class ProviderResponseInvalid(EvalfleetError):
    """The provider's answer cannot be decoded."""

    reason = "PROVIDER_RESPONSE_INVALID"


class ScriptExhausted(EvalfleetError):
    """A scripted model has no answer for this call."""

    reason = "SCRIPT_EXHAUSTED"


class EngineUnavailable(EvalfleetError):
    """The container engine of a sandbox driver does not answer. It may be starting."""

    reason = "ENGINE_UNAVAILABLE"
    again = "yes, not begun"


class EngineUnusable(EvalfleetError):
    """The container engine of a sandbox driver is too old, or refuses the driver's requests."""

    reason = "ENGINE_UNUSABLE"


class PriceUnknown(EvalfleetError):
    """A limit or a budget bounds dollars, and the model's price is unknown."""

    reason = "PRICE_UNKNOWN"


class ConnectionQueueFull(EvalfleetError):
    """Too many calls wait for the account's connections."""

    reason = "CONNECTION_QUEUE_FULL"
    again = "yes, not begun"


class SandboxQuota(EvalfleetError):
    """No further sandbox can be created now, also because the disk is nearly full (quota `disk`) or the machine lacks
    something (quota `machine`), or a sandbox may not have more processes or results."""

    reason = "SANDBOX_QUOTA"
    again = "yes, not begun"


class BudgetExhausted(EvalfleetError):
    """A project's, an eval's or an account's budget is spent."""

    reason = "BUDGET_EXHAUSTED"
    again = "yes, not begun"


class WorkerUnavailable(EvalfleetError):
    """No connected worker serves it, and one may connect, or too many calls wait for the workers."""

    reason = "WORKER_UNAVAILABLE"
    again = "yes, not begun"


class WorkerNotConnected(EvalfleetError):
    """No worker that serves it was ever connected, or the last has been away for too long."""

    reason = "WORKER_NOT_CONNECTED"


class WorkerFailed(EvalfleetError):
    """A worker reported that a call failed permanently, or its answer cannot be decoded."""

    reason = "WORKER_FAILED"


class WorkerRefused(EvalfleetError):
    """The connection of a worker ends, since there are too many workers, or since the worker reads nothing, leaves too
    many results or sends only useless frames."""

    reason = "WORKER_REFUSED"


class BatchPending(EvalfleetError):
    """The call waits for an answer in a batch, and its caller asked for this error in place of waiting. The same
    request asks again."""

    reason = "BATCH_PENDING"
    again = "yes, not begun"


class TokenInvalid(EvalfleetError):
    """The credential is missing or unknown."""

    reason = "TOKEN_INVALID"


class ActionDenied(EvalfleetError):
    """The principal lacks the permission."""

    reason = "ACTION_DENIED"


class NotBuiltYet(EvalfleetError):
    """This version does not have the capability of the RPC or field yet; the details name the field."""

    reason = "NOT_BUILT_YET"


class Internal(EvalfleetError):
    """A fault of the server. The log has the cause under the request id."""

    reason = "INTERNAL"


class ServiceUnavailable(EvalfleetError):
    """The service is starting or stopping, or its calls in flight have as many offloaded values as they may have."""

    reason = "SERVICE_UNAVAILABLE"
    again = "yes"


class StoreUnavailable(EvalfleetError):
    """The service's database cannot read or write now: `full` (no space on its disk), `io` (its disk fails), `busy`
    (another process holds its lock), `memory` or `damaged`. Background work retries without end."""

    reason = "STORE_UNAVAILABLE"
    again = "yes"


class BodyDamaged(EvalfleetError):
    """The bytes of a stored body no longer have the hash that names it: its file was truncated or changed. Uploading
    the body again replaces it."""

    reason = "BODY_DAMAGED"


class DeadlineExceeded(EvalfleetError, TimeoutError):
    """The call did not end within its own time limit or the server's."""

    reason = "DEADLINE_EXCEEDED"


class RouteNotFound(EvalfleetError):
    """REST has no such path."""

    reason = "ROUTE_NOT_FOUND"


class MethodNotAllowed(EvalfleetError):
    """REST has the path, but not with this method."""

    reason = "METHOD_NOT_ALLOWED"
