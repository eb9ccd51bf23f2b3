package taskfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// place is the path that an error of the server begins with: names of fields, each but the last with a colon behind it.
// A sample may stand between them. What follows it may name files and columns, and is left as it is.
var place = regexp.MustCompile(`^(?:` + field + `: )*(?:sample [^:]*: )?(?:` + field + `: )*(?:` + field + `)?`)

const field = `[a-z_]\w*(?:\[(?:\d+|"[^"]*")\]|[./]\w+)*`

// Naming is a name of the API, and what people know it by.
type Naming struct {
	Field *regexp.Regexp
	Name  string
}

// commonWords are for every command, and come last.
var commonWords = []Naming{
	{regexp.MustCompile(`^spec\.`), ""},
	{regexp.MustCompile(`\.tools: tools\[`), ".tools["},
	{regexp.MustCompile(`^tools: tools\[`), "tools["},
	{regexp.MustCompile(`^model: model: `), "model: "},
	{regexp.MustCompile(`: spec\.`), "."},
	{regexp.MustCompile(`\bmodel_args_json\b`), "args"},
	{regexp.MustCompile(`\.(?:params|options)_json: `), ": parameters: "},
	{regexp.MustCompile(`\b(?:params|options)_json: `), "parameters: "},
	{regexp.MustCompile(`\b(?:params|options)_json/`), "parameters "},
	{regexp.MustCompile(`\bdriver_config_json\b`), "config"},
	{regexp.MustCompile(`\b(metadata|fields|extra_body)_json\b`), "$1"},
}

// fileWords are the names that a task file has for fields of the API, in the order in which they are put in.
var fileWords = []Naming{
	{regexp.MustCompile(`^spec\.dataset\.inline\.samples\[`), "dataset["},
	{regexp.MustCompile(`^spec\.dataset\.file\.`), "dataset."},
	{regexp.MustCompile(`^spec\.scorers\b`), "scorer"},
	{regexp.MustCompile(`^spec\.steps\b`), "solver"},
	{regexp.MustCompile(`^spec\.models\b`), "model"},
	{regexp.MustCompile(`^spec\.sandboxes\["default"\]`), "sandbox"},
	{regexp.MustCompile(`^spec\.sandboxes(\[".*?"\])`), "sandbox.environments$1"},
	{regexp.MustCompile(`^spec\.sandboxes\b`), "sandbox"},
	{regexp.MustCompile(`^spec\.epochs\.reducers\b`), "epochs.reducer"},
	{regexp.MustCompile(`^spec\.epochs\.count\b`), "epochs"},
	{regexp.MustCompile(`^spec\.sample_ids\b`), "samples.ids"},
	{regexp.MustCompile(`^spec\.limit\b`), "samples.limit"},
}

// Words are the names that the task file of a specification has for fields of the API.
func Words(spec *agentv1.EvalSpec) []Naming {
	words := fileWords
	for i, step := range spec.GetSteps() {
		if len(step.GetTools()) == 0 { // Its tools are the task's.
			words = append([]Naming{{regexp.MustCompile(fmt.Sprintf(`^spec\.steps\[%d\]\.tools\b`, i)), "tools"}}, words...)
		}
	}
	return words
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
	reworded := *fault
	reworded.Message = path + text
	return &reworded
}
