// Package tool defines tools, keeps the registry of tools, and checks the arguments of their calls.
//
// A Kind is the unit of registration: a name, the schema of its options, and a function that makes a Tool with given
// options. An Offer is a tool as one run offers it to its model: with options set, possibly renamed or with a new
// description. Built-in tools, tools of workers and tools of MCP servers look the same to their callers. Package
// execute runs the calls of a message, in parallel or one after another.
package tool

import (
	"context"
	"encoding/json"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Tool is an action that a model can call. It is stateless between calls: lasting state is in the sandbox or in the
// run's store. Its methods are safe for concurrent use.
type Tool interface {
	// Definition returns the tool's definition. It is the same at every call. Do not modify it.
	Definition() *Definition
	// Call runs one call, until it is done or ctx ends. If the chain of the returned error has an *Error, an error of
	// package fs about a file, or an exceeded deadline, the error is for the model and the run continues; any other
	// error ends the run.
	Call(ctx context.Context, call *Call) (*Result, error)
}

// Kind is a tool with options that are not set yet.
type Kind struct {
	// Name is the name by which a run refers to it.
	Name string
	// Options is the JSON Schema of the options: an object without additional members. New receives only options that
	// conform to it.
	Options json.RawMessage
	// New returns the tool; options is a JSON object. It fails if the options contradict each other.
	New func(options json.RawMessage) (Tool, error)
}

// Definition describes a tool.
type Definition struct {
	// Public is the part for callers. OnUnknown must be set.
	Public *toolv1.ToolDefinition
	// View shows a call to a person, from unchecked arguments. Nil, or a nil result, means no view.
	View func(arguments json.RawMessage) *toolv1.ToolCallContent
	// Verbatim passes valid arguments as the model sent them: defaults are not filled in and dates not checked.
	Verbatim bool
}

// Call is one call of a tool.
type Call struct {
	// ID is the model's id of the call; Attribution is on whose behalf the call runs.
	ID          string
	Attribution *effectv1.Attribution
	// Key is the key of the call's effect. A call without a request id has no key and is not recorded. Again reports
	// that a process that died may have begun the call.
	Key   effect.Key
	Again bool
	// Arguments is a JSON object that conforms to the definition's parameters, with defaults filled in.
	Arguments json.RawMessage
	// Sandbox returns the sandbox of an environment of the run; "" means the tool's default environment. An unknown
	// environment is an error that ends the run.
	Sandbox func(environment string) (Sandbox, error)
	// Store has the entries of the run's store that the definition names. It is never nil.
	Store *Store
	// Progress reports the call's progress to people, as one line. It is never nil.
	Progress func(line string)
}

// Result is the outcome of a call.
type Result struct {
	// Content is the result for the model. Nil means an empty text. A text is cut to the bound of the run.
	Content *contentv1.MessageContent
	// OmittedBytes is how many bytes the tool itself left out of the middle of a text, because of its own bound.
	OmittedBytes int64
	// Queued is how long the call waited before work on it began.
	Queued time.Duration
}

// Sandbox is the machine in which a tool acts. Every command has a key made of the call's key and its number within the
// call, so a call that is retried after a crash gets the results of the commands that it ran before. Hence a tool runs
// its commands one after another, and the same ones for the same arguments.
//
// Errors with a cause in the sandbox are for the model: a lost sandbox, a file that does not exist, a NUL in a command.
type Sandbox interface {
	// Exec runs a command until it ends. A non-zero exit and a time-out are results, not errors.
	Exec(ctx context.Context, spec *sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error)
	// ReadFile returns the content of a file of at most 3 MiB.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile replaces a file, by content of at most 3 MiB, and creates its parents.
	WriteFile(ctx context.Context, path string, content []byte) error
	// GuestPath returns the path of the guest program inside the sandbox.
	GuestPath(ctx context.Context) (string, error)
}
