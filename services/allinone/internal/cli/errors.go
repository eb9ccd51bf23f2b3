package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
)

// Exit codes; the help of the root command documents them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	// ExitInterrupted is that of a command that an interrupt ended.
	ExitInterrupted = 130
)

// errInterrupted ends a command on the user's request, without a further message.
var errInterrupted = errors.New("interrupted")

// usageError is a fault in a command line, or in a file that it names. Nothing was started.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// statusError ends a command with another exit code than 1. An empty message prints nothing.
type statusError struct {
	code    int
	message string
}

func (e statusError) Error() string { return e.message }

// exitCode is the code for err.
func exitCode(err error) int {
	if status, ok := errors.AsType[statusError](err); ok {
		return status.code
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return ExitInterrupted
	}
	return serverCode(err)
}

// serverCode is the code for what a server said, or for its silence.
func serverCode(err error) int {
	reason := rpcerr.Reason(err)
	switch reason { //nolint:exhaustive // Of what a command line or a task file asks for.
	case errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND, errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND, errorsv1.ErrorReason_ERROR_REASON_AGENT_NOT_FOUND,
		errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, errorsv1.ErrorReason_ERROR_REASON_DRIVER_NOT_FOUND, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED,
		errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET:
		return exitUsage
	}
	switch rpcerr.Code(err) { //nolint:exhaustive // All others are plain failures.
	case codes.InvalidArgument:
		return exitUsage
	case codes.Unauthenticated:
		return exitUnreachable
	case codes.PermissionDenied: // With a reason it is about what was to be done, not about who asks.
		if reason == errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			return exitUnreachable
		}
	case codes.Unavailable: // With another reason it is something behind the server.
		if reason == errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED || reason == errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE {
			return exitUnreachable
		}
	}
	return exitFailed
}

// report prints an error and the next step.
func (a *app) report(err error) {
	if err == nil || err.Error() == "" || errors.Is(err, errInterrupted) {
		return
	}
	if a.json {
		e, _ := rpcerr.As(err)
		if e == nil {
			e = &rpcerr.Error{}
		}
		out := map[string]any{"message": message(err), "exit": exitCode(err)}
		if e.Reason != errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			out["reason"] = rpcerr.ReasonName(e.Reason)
		}
		b, _ := json.Marshal(map[string]any{"error": out}) // Texts and numbers can always be written.
		fmt.Fprintln(a.Stderr, string(b))
		return
	}
	for line := range strings.Lines(message(err)) {
		fmt.Fprintln(a.Stderr, "evalfleet: "+printable.Line(strings.TrimRight(line, "\n")))
	}
	if next := a.nextStep(err); next != "" {
		fmt.Fprintln(a.Stderr, "  "+next)
	}
}

// dialing is what grpc-go says of a server that it cannot connect to.
var dialing = regexp.MustCompile(`connection error: desc = "(?:transport: )?(?:Error while dialing: )?(.*)"`)

// message is what an error says, without the words of grpc-go.
func message(err error) string {
	return dialing.ReplaceAllString(err.Error(), "the server cannot be reached: $1")
}

// nextSteps are what to do about an error that its message does not say, since a server cannot know the command line.
var nextSteps = map[errorsv1.ErrorReason]string{
	errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID:           "the server's token is the file token in its data directory; name it with --token-file",
	errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND:         "evalfleet models lists providers and models",
	errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED: "evalfleet models shows which accounts have a key",
	errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND:          "evalfleet tools lists the tools",
	errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND:        "a scorer of your own, such as one that asks a model, is served by a worker: docs/workers.md",
	errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND:      "evalfleet eval list, run list and sandbox ls show what there is",
	errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE:   "a sandbox that is not isolated is made only where serve or eval run was given --allow-unisolated and the task asks for it",
}

func (a *app) nextStep(err error) string {
	if _, ok := errors.AsType[*taskFileError](err); ok {
		return "docs/task-file.md describes task files"
	}
	if _, ok := errors.AsType[usageError](err); ok {
		if a.at != nil {
			return "see " + a.at.CommandPath() + " --help"
		}
		return ""
	}
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED) {
		if fault, _ := rpcerr.As(err); fault.Metadata["provider"] == compatible {
			return howToServe(fault.Metadata["account"])
		}
		if a.holder.PID != 0 {
			return a.keyless(err)
		}
	}
	if next := nextSteps[rpcerr.Reason(err)]; next != "" {
		fault, _ := rpcerr.As(err)
		if fault.Metadata["metric"]+fault.Metadata["reducer"] != "" {
			return "docs/task-file.md describes metrics and reducers"
		}
		if found := whatThereIs(fault.Metadata["resource"]); found != "" {
			return found
		}
		return next
	}
	if rpcerr.Code(err) == codes.Unavailable && rpcerr.Reason(err) == errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return "is a server running there? evalfleet serve starts one; without --server, eval run and run start one by themselves"
	}
	return ""
}

// whatThereIs is the command that lists the resources of the kind of one that was not found; empty for runs,
// evaluations and sandboxes, since an id may be meant for any of these.
func whatThereIs(resource string) string {
	switch {
	case strings.HasPrefix(resource, "providers/"):
		return nextSteps[errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND]
	case strings.Contains(resource, "/batches/"):
		return "evalfleet batches list shows what there is"
	default:
		return ""
	}
}

// keyVariables are the environment variables with the keys of providers' default accounts.
var keyVariables = map[string]string{
	"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GOOGLE_API_KEY", "grok": "XAI_API_KEY", "mistral": "MISTRAL_API_KEY", "mistral/azure": "AZUREAI_MISTRAL_API_KEY",
}

// keyless explains of an account without a key that it is configured in the running server, not in this command.
func (a *app) keyless(err error) string {
	fault, _ := rpcerr.As(err)
	key := keyVariables[fault.Metadata["provider"]]
	if key == "" || fault.Metadata["account"] != "default" {
		return fmt.Sprintf("the server, process %d, was started without it; when its work is done, stop it with kill %d and start it with the key in its configuration", a.holder.PID, a.holder.PID)
	}
	return fmt.Sprintf("the server, process %d, was started without %s; when its work is done, stop it with kill %d and run this again where %s is set, or start it there: evalfleet serve",
		a.holder.PID, key, a.holder.PID, key)
}

// compatible is the provider of servers that are configured by name.
const compatible = "openai-api"

// howToServe explains how to configure a server that implements OpenAI's API.
func howToServe(name string) string {
	variable := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	return fmt.Sprintf("set base_url and api_key in modelgw.openai_api.services.%s of the server's configuration (docs/config.md), or %s_BASE_URL and %s_API_KEY where the server starts",
		name, variable, variable)
}

// taskFileError is a task file that cannot be read as one.
type taskFileError struct{ error }

func (e *taskFileError) Unwrap() error { return e.error }
