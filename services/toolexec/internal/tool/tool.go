// Package tool declares what a tool is, keeps the tools that there are, and checks the arguments of their calls.
//
// A Kind is what the platform registers: a name, the schema of its options, and a function that makes a Tool with given
// options. An Offer is a tool as one run offers it to its model: with options set, perhaps renamed or described anew.
// Built-in tools, tools of workers and tools of MCP servers are the same to everyone who calls them. Running the calls
// of a message side by side or one after another is left to package execute.
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

// Tool does what a model asks for. It keeps nothing between calls: what must last is in the sandbox or in the run's
// store. Its methods are safe for concurrent use.
type Tool interface {
	// Definition returns what is known of the tool. It is the same at every call, and is not to be changed.
	Definition() *Definition
	// Call runs one call, until it is done or ctx ends. An *Error in the chain of an error, an error of package fs
	// about a file, and a deadline are for the model, which goes on; any other error ends the run.
	Call(ctx context.Context, call *Call) (*Result, error)
}

// Kind is a tool that is to be had with different options.
type Kind struct {
	// Name is how a run refers to it.
	Name string
	// Options is the JSON Schema of the options: an object that allows no further members. New sees options that passed
	// it.
	Options json.RawMessage
	// New makes the tool; options is a JSON object. It fails when the options contradict each other.
	New func(options json.RawMessage) (Tool, error)
}

// Definition is what is known of a tool.
type Definition struct {
	// Public is what callers are told. OnUnknown must be set.
	Public *toolv1.ToolDefinition
	// View shows a call to a person. Nil, or a nil result, shows none. Arguments are not yet checked.
	View func(arguments json.RawMessage) *toolv1.ToolCallContent
	// Verbatim hands arguments over as the model sent them, once they are valid: defaults are not filled in and dates
	// not checked.
	Verbatim bool
}

// Call is one call of a tool.
type Call struct {
	// ID is the model's for the call, Attribution on whose behalf it is.
	ID          string
	Attribution *effectv1.Attribution
	// Key is the call's effect; without an id it leaves no trace. Again says that a process which is gone may have
	// begun the call.
	Key   effect.Key
	Again bool
	// Arguments is a JSON object that fits the definition's parameters, with defaults filled in.
	Arguments json.RawMessage
	// Sandbox returns the sandbox of an environment of the run; "" is the tool's default one. An environment that does
	// not exist is an error that ends the run.
	Sandbox func(environment string) (Sandbox, error)
	// Store holds the entries of the run's store that the definition names. It is never nil.
	Store *Store
	// Progress tells people how the call goes on, in one line. It is never nil.
	Progress func(line string)
}

// Result is what a call gave.
type Result struct {
	// Content is what the model sees. Nil is an empty text. Text is cut to the bound of the run.
	Content *contentv1.MessageContent
	// OmittedBytes is how much was left out of the middle of a text before, by a bound of the tool itself.
	OmittedBytes int64
	// Queued is how long the call waited before anyone worked on it.
	Queued time.Duration
}

// Sandbox is the machine that a tool acts in. Every command has a key made of the call's key and its number within the
// call, so a call that runs again after a crash gets the results of the commands that it ran before. Hence a tool runs
// its commands one after another, and the same ones for the same arguments.
//
// Errors are for the model where the sandbox gives reason: a lost sandbox, a file that does not exist, a NUL in a
// command.
type Sandbox interface {
	// Exec runs a command to its end. A non-zero exit and a time-out are results, not errors.
	Exec(ctx context.Context, spec *sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error)
	// ReadFile returns the content of a file of at most 3 MiB.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile replaces a file of at most 3 MiB and makes its parents.
	WriteFile(ctx context.Context, path string, content []byte) error
	// GuestPath returns where the guest program is inside the sandbox.
	GuestPath(ctx context.Context) (string, error)
}
