package cli

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// fileWords are the names that a task file has for fields of the API, in the order in which they are put in. A field is
// replaced only in the path that a message begins with, or right after it, since what follows may name files and
// columns.
var fileWords = []struct {
	field *regexp.Regexp
	word  string
}{
	{regexp.MustCompile(`^spec\.dataset\.inline\.samples\[`), "dataset["},
	{regexp.MustCompile(`^spec\.dataset\.file\.`), "dataset."},
	{regexp.MustCompile(`^spec\.scorers\b`), "scorer"},
	{regexp.MustCompile(`^spec\.steps\b`), "solver"},
	{regexp.MustCompile(`^spec\.models\b`), "model"},
	{regexp.MustCompile(`^spec\.sandboxes\["default"\](: spec\b)?`), "sandbox"},
	{regexp.MustCompile(`^spec\.sandboxes(\[".*?"\])(: spec\b)?`), "sandbox.environments$1"},
	{regexp.MustCompile(`^spec\.sandboxes\b`), "sandbox"},
	{regexp.MustCompile(`^spec\.epochs\.reducers\b`), "epochs.reducer"},
	{regexp.MustCompile(`^spec\.sample_ids\b`), "samples.ids"},
	{regexp.MustCompile(`^spec\.limit\b`), "samples.limit"},
	{regexp.MustCompile(`^spec\.`), ""},
	{regexp.MustCompile(`^([^:]*(?:: )?)\bmodel_args_json\b`), "${1}args"},
	{regexp.MustCompile(`^([^:]*(?:: )?)\b(?:params|options)_json:`), "${1}parameters:"},
	{regexp.MustCompile(`^([^:]*(?:: )?)\b(?:params|options)_json(?:/|\b)`), "${1}parameters "},
	{regexp.MustCompile(`^([^:]*(?:: )?)\b(metadata|fields)_json\b`), "$1$2"},
}

// inFileWords is an error of the server about an evaluation with the names of the task file in its message.
func inFileWords(err error) error {
	fault, ok := rpcerr.As(err)
	if !ok || !strings.HasPrefix(fault.Message, "spec.") {
		return err
	}
	reworded := *fault
	for _, w := range fileWords {
		reworded.Message = w.field.ReplaceAllString(reworded.Message, w.word)
	}
	return &reworded
}
