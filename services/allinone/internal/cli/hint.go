package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// checkModelName refuses a model without a provider where the model that is meant can be named. All others are for the
// server to judge.
func checkModelName(model string) error {
	if model == "" || strings.Contains(model, "/") {
		return nil
	}
	meant := ""
	for _, known := range modelgw.Models() {
		if _, name, _ := strings.Cut(known, "/"); name == model {
			meant = known
		}
	}
	for prefix, provider := range map[string]string{"gpt-": "openai", "claude-": "anthropic"} {
		if meant == "" && strings.HasPrefix(model, prefix) {
			meant = provider + "/" + model
		}
	}
	if meant == "" {
		return nil
	}
	return usage("%q is no model; did you mean %s?", model, meant)
}

// inspectFlag says about a flag that eval run does not have, and that inspect eval has, how the same is said here.
func inspectFlag(_ *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name := unknown.GetSpecifiedName()
	option := protoreflect.Name(strings.ReplaceAll(name, "-", "_"))
	switch {
	case name == "T" || strings.HasPrefix(unknown.GetSpecifiedShortnames(), "T"):
		return usage("%w: a task file has no arguments; --set KEY=VALUE changes a key of it", err)
	case (&modelv1.GenerateConfig{}).ProtoReflect().Descriptor().Fields().ByName(option) != nil:
		return usage("%w: it is an option of the model; write --set config.%s=VALUE", err, option)
	}
	return err
}

// place is the path that an error of the server begins with: names of fields, each but the last with a colon behind it.
// A sample may stand between them. What follows it may name files and columns, and is left as it is.
var place = regexp.MustCompile(`^(?:` + field + `: )*(?:sample [^:]*: )?(?:` + field + `: )*(?:` + field + `)?`)

const field = `[a-z_]\w*(?:\[(?:\d+|"[^"]*")\]|[./]\w+)*`

// naming is a name of the API, and what people know it by.
type naming struct {
	field *regexp.Regexp
	name  string
}

// commonWords are for every command, and come last.
var commonWords = []naming{
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
var fileWords = []naming{
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

// flagWords maps a field to the flag of eval run that sets it.
var flagWords = []struct {
	flag   string
	naming naming
}{
	{"model-arg", naming{regexp.MustCompile(`^spec\.models?(?:\[\d+\])?: model_args_json: `), "-M: "}},
	{"model", naming{regexp.MustCompile(`^spec\.models?(?:\[\d+\])?: (?:model: )?`), "--model: "}},
	{"limit", naming{regexp.MustCompile(`^spec\.limit: `), "--limit: "}},
	{"epochs", naming{regexp.MustCompile(`^spec\.epochs\.count: `), "--epochs: "}},
	{"sample-id", naming{regexp.MustCompile(`^spec\.sample_ids: `), "--sample-id: "}},
}

// runWords are the flags of run for fields of the API.
var runWords = []naming{
	{regexp.MustCompile(`^spec\.model: model_args_json: `), "-M: "},
	{regexp.MustCompile(`^spec\.model: (?:model: )?`), "--model: "},
	{regexp.MustCompile(`^spec\.steps\[\d+\]\.tools: `), "--tool: "},
	{regexp.MustCompile(`^spec\.steps\[\d+\]: `), "--agent: "},
	{regexp.MustCompile(`^spec\.sandboxes\["default"\]: `), "--sandbox: "},
}

// inWords is an error of the server about a specification with other names in its message.
func inWords(err error, words []naming) error {
	fault, ok := rpcerr.As(err)
	if !ok || !strings.HasPrefix(fault.Message, "spec.") {
		return err
	}
	path := place.FindString(fault.Message)
	text := fault.Message[len(path):]
	for _, w := range slices.Concat(words, commonWords) {
		path = w.field.ReplaceAllString(path, w.name)
	}
	reworded := *fault
	reworded.Message = path + text
	return &reworded
}

// inFlagWords is an error of the server about a run with the flags of the command in its message.
func inFlagWords(err error) error { return inWords(err, runWords) }

// inFileWords is an error of the server about an evaluation with the names of the task file in its message, behind the
// file's own; where a flag says what is wrong, with the flag's. given says which flags there were.
func inFileWords(err error, spec *agentv1.EvalSpec, given func(flag string) bool) error {
	fault, ok := rpcerr.As(err)
	for _, f := range flagWords {
		if ok && given != nil && given(f.flag) && f.naming.field.MatchString(fault.Message) {
			return inWords(err, []naming{f.naming})
		}
	}
	words := fileWords
	for i, step := range spec.GetSteps() {
		if len(step.GetTools()) == 0 { // Its tools are the task's.
			words = append([]naming{{regexp.MustCompile(fmt.Sprintf(`^spec\.steps\[%d\]\.tools\b`, i)), "tools"}}, words...)
		}
	}
	return fmt.Errorf("%s: %w", spec.GetTaskFile(), inWords(err, words))
}
