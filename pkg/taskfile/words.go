package taskfile

import (
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// place matches the path at the start of a server's error: names of fields, each but the last followed by a colon. A
// sample may be among them. The rest may name files and columns, and is left unchanged.
var place = regexp.MustCompile(`^(?:` + field + `: )*(?:sample [^:]*: )?(?:` + field + `: )*(?:` + field + `)?`)

const field = `[a-z_]\w*(?:\[(?:\d+|"[^"]*")\]|[./]\w+)*`

// parameters precedes the name of a parameter.
const parameters = ": parameters "

// Naming maps a name of the API to the name that people use.
type Naming struct {
	Field *regexp.Regexp
	Name  string
}

// commonWords apply to every command, and come last.
var commonWords = []Naming{
	{regexp.MustCompile(`^spec\.`), ""},
	{regexp.MustCompile(`^model\.model: `), "model: "},
	{regexp.MustCompile(`: spec\.`), "."},
	{regexp.MustCompile(`\bmodel_args_json\b`), "args"},
	{regexp.MustCompile(`\.(?:params|options)_json: `), ": parameters: "},
	{regexp.MustCompile(`\.(?:params|options)_json/`), parameters},
	{regexp.MustCompile(`\bdriver_config_json\b`), "config"},
	{regexp.MustCompile(`\b(metadata|fields|extra_body)_json\b`), "$1"},
}

// Words are a task file's names for fields of the API, in the order of their replacement. They must not be modified.
var Words = []Naming{
	{regexp.MustCompile(`^spec\.dataset\.inline\.samples\[`), "dataset["},
	{regexp.MustCompile(`^spec\.dataset\.file\.`), "dataset."},
	{regexp.MustCompile(`^spec\.scorers\b`), "scorer"},
	{regexp.MustCompile(`^spec\.steps\b`), "solver"},
	{regexp.MustCompile(`^spec\.models\b(?:\[\d+\])?`), "model"},
	{regexp.MustCompile(`^spec\.sandboxes\["default"\]`), "sandbox"},
	{regexp.MustCompile(`^spec\.sandboxes(\[".*?"\])`), "sandbox.environments$1"},
	{regexp.MustCompile(`^spec\.sandboxes\b`), "sandbox"},
	{regexp.MustCompile(`^spec\.epochs\.reducers\b`), "epochs.reducer"},
	{regexp.MustCompile(`^spec\.epochs\.count\b`), "epochs"},
	{regexp.MustCompile(`^spec\.sample_ids\b`), "samples.ids"},
	{regexp.MustCompile(`^spec\.limit\b`), "samples.limit"},
}

// InWords is an error of the server about a specification with other names in its message.
func InWords(err error, words []Naming) error {
	fault, ok := rpcerr.As(err)
	if !ok || !strings.HasPrefix(fault.Message, "spec.") {
		return err
	}
	path := place.FindString(fault.Message)
	text := fault.Message[len(path):]
	for _, w := range slices.Concat(words, commonWords) {
		path = w.Field.ReplaceAllString(path, w.Name)
	}
	if step, member, ok := strings.Cut(path, parameters); ok { // A member within JSON has the path of a JSON pointer.
		member, rest, more := strings.Cut(member, ": ")
		path = step + parameters + strings.ReplaceAll(member, "/", ".")
		if more {
			path += ": " + rest
		}
	}
	reworded := *fault
	reworded.Message = path + text
	return &reworded
}
