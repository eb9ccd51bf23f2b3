// Package dataset reads the samples of an evaluation from JSON Lines, JSON and CSV files.
//
// A file is a sequence of rows, and a row is a set of named columns. Fields maps columns, templates or patterns to the
// fields of a sample. No data is dropped silently: an unreadable row, a missing column and a value of the wrong kind
// are errors that name the file, the line, the field and the column, and say what to do. The rules for values are those
// of Inspect's datasets.
//
// The package only reads the file and looks for files that its rows name. Messages stay JSON and sandboxes stay names;
// callers decode them. Values are not safe for concurrent changes.
package dataset

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Sample is one question of a dataset.
type Sample struct {
	// ID identifies the sample; not set if the file has none, see [IDs].
	ID ID
	// Text is the input when it is one text, the user's message.
	Text string
	// Messages is the input if it is a conversation: JSON objects with role, content, source `input` and, if given,
	// tool_calls (id, function, arguments, type), tool_call_id, function and error. Nil if the input is Text.
	Messages []json.RawMessage
	// Targets are the correct answers. A target that was given as one text is a list of one.
	Targets []string
	// TargetIsList is set if the target was given as a list.
	TargetIsList bool
	// Choices are the options of a multiple-choice question; nil if there are none.
	Choices []string
	// ChoiceOrder has for each choice its position before choices were shuffled; nil when they were not.
	ChoiceOrder []int
	// Metadata are further facts by name; nil if there are none.
	Metadata *orderedjson.Object
	// Sandbox overrides the task's sandbox; nil if it does not.
	Sandbox *Sandbox
	// Files are to be placed in the sandbox, in the order of the file; nil if there are none.
	Files []File
	// Setup is a script to run in the sandbox once files are placed; nil if there is none.
	Setup *Content
}

// Sandbox names a kind of sandbox and its configuration.
type Sandbox struct {
	Type string
	// Config is the configuration or the file that holds it; nil if there is none.
	Config *Content
}

// File is a file to place in a sandbox.
type File struct {
	// Path is the target path, optionally with the name of a sandbox before it: `name:path`.
	Path    string
	Content Content
}

// Content is text, or a file or folder of the host that holds it. Text may be a data URI, which represents its decoded
// bytes.
type Content struct {
	Text string
	// HostPath is the absolute path of an existing file or folder below the dataset's directory; empty when Text is the
	// content.
	HostPath string
}

// String returns the host path or the text, whichever the content is.
func (c Content) String() string {
	if c.HostPath != "" {
		return c.HostPath
	}
	return c.Text
}
