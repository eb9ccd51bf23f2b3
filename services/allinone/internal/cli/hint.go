package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/taskfile"
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
	for prefix, provider := range map[string]string{"gpt-": "openai", "claude-": "anthropic", "gemini-": "google", "grok-": "grok"} {
		if meant == "" && strings.HasPrefix(model, prefix) {
			meant = provider + "/" + model
		}
	}
	if meant == "" {
		return nil
	}
	return usage("%q is no model; did you mean %s?", model, meant)
}

// inspectFlag explains, for a flag of inspect eval that eval run does not have, the equivalent here.
func inspectFlag(_ *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return flagValue(nil, err)
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

// flagValue says of a value that a flag does not take which values it takes.
func flagValue(_ *cobra.Command, err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want, known := map[string]string{
		"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "bool": "true or false", "duration": "a time, such as 90s or 5m",
	}[invalid.GetFlag().Value.Type()]
	if !known {
		return err
	}
	return usage("--%s %s: want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// flagWords maps a field to the flag of eval run that sets it.
var flagWords = []struct {
	flag   string
	naming taskfile.Naming
}{
	{"model-arg", taskfile.Naming{Field: regexp.MustCompile(`^spec\.models?(?:\[\d+\])?\.model_args_json: `), Name: "-M: "}},
	{"model", taskfile.Naming{Field: regexp.MustCompile(`^spec\.models?(?:\[\d+\])?(?:\.model)?: `), Name: "--model: "}},
	{"limit", taskfile.Naming{Field: regexp.MustCompile(`^spec\.limit: `), Name: "--limit: "}},
	{"epochs", taskfile.Naming{Field: regexp.MustCompile(`^spec\.epochs\.count: `), Name: "--epochs: "}},
	{"sample-id", taskfile.Naming{Field: regexp.MustCompile(`^spec\.sample_ids: `), Name: "--sample-id: "}},
}

// runWords are the flags of run for fields of the API.
var runWords = []taskfile.Naming{
	{Field: regexp.MustCompile(`^spec\.model\.model_args_json: `), Name: "-M: "},
	{Field: regexp.MustCompile(`^spec\.model(?:\.model)?: `), Name: "--model: "},
	{Field: regexp.MustCompile(`^spec\.(?:steps\[\d+\]\.)?tools(?:\[\d+\]\.name)?: `), Name: "--tool: "},
	{Field: regexp.MustCompile(`^spec\.steps\[\d+\](?:\.name)?: `), Name: "--agent: "},
	{Field: regexp.MustCompile(`^spec\.sandboxes\["default"\](?:\.driver)?: `), Name: "--sandbox: "},
}

// inFlagWords is an error of the server about a run with the flags of the command in its message.
func inFlagWords(err error) error { return taskfile.InWords(err, runWords) }

// inFileWords rewrites an error of the server about an evaluation: its message uses the names of the task file, after
// the file's own name, or the flag's name if a flag caused it. given reports which flags were given.
func inFileWords(err error, spec *agentv1.EvalSpec, given func(flag string) bool) error {
	fault, ok := rpcerr.As(err)
	for _, f := range flagWords {
		if ok && given != nil && given(f.flag) && f.naming.Field.MatchString(fault.Message) {
			return taskfile.InWords(err, []taskfile.Naming{f.naming})
		}
	}
	return fmt.Errorf("%s: %w", spec.GetTaskFile(), taskfile.InWords(err, taskfile.Words))
}
