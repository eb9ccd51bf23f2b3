package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/bash"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/python"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/texteditor"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/think"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// builtins returns the service's built-in tools.
func builtins() []tool.Kind {
	return []tool.Kind{bash.Kind(), python.Kind(), texteditor.Kind(), think.Kind()}
}

// TestGoldenBuiltins: calls of a built-in tool in sequence in; results, files and the state that later commands see
// out.
func TestGoldenBuiltins(t *testing.T) {
	t.Parallel()
	cases := goldentest.Load(t, "tools/bash.json", "tools/text_editor.json", "tools/small_tools.json")
	service := startSandboxd(t)
	goldentest.Run(t, "builtins", cases, func(t *goldentest.T, c goldentest.Case) {
		if _, err := newService(t, nil, builtins()...).ResolveTools(t.Context(), &toolv1.ResolveToolsRequest{
			Parent: parent, Tools: []*toolv1.ToolRef{{Name: c.At("tool").(string)}},
		}); err != nil {
			t.Fatal(err)
		}
		builtinCase(t, c, service.open(t))
	}, goldentest.Parallel())
}

func builtinCase(t *goldentest.T, c goldentest.Case, b *box) {
	var recorded struct {
		Tool    string          `json:"tool"`
		Options json.RawMessage `json:"options"`
		Setup   string          `json:"setup"`
	}
	if err := c.Decode(&recorded); err != nil {
		t.Fatal(err)
	}
	files, _ := c.At("initial_files").(map[string]any)
	for name, content := range files {
		b.write(t, name, fileContent(t, content))
	}
	if recorded.Setup != "" {
		b.shell(t, recorded.Setup)
	}

	s := newService(t, b.client, builtins()...)
	results := []any{}
	wanted, _ := c.At("results").([]any)
	calls, _ := c.At("calls").([]any)
	for i, call := range calls {
		arguments, err := corpus.Expand(call.(map[string]any)["arguments"])
		if err != nil {
			t.Fatal(err)
		}
		arguments = corpus.Substitute(arguments, "<workdir>", b.workdir)
		out, err := s.execute(t.Context(), &toolv1.ExecuteToolsRequest{
			Parent:    parent,
			RequestId: fmt.Sprintf("run/%d", i),
			Tools:     []*toolv1.ToolRef{{Name: recorded.Tool, OptionsJson: string(recorded.Options)}},
			Calls:     []*toolv1.ToolCall{{Id: "c1", Function: recorded.Tool, ArgumentsJson: string(document(t, arguments))}},
			Sandboxes: map[string]string{"default": b.name},
		})
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if i < len(wanted) {
			want = wanted[i]
		}
		results = append(results, resultForm(out.results()[0], want))
	}
	got, _ := corpus.Substitute(results, b.workdir, "<workdir>").([]any)
	for i, want := range wanted {
		if isListing(want) && i < len(got) && t.Equal(want, got[i], match.AnyLines()) {
			got[i] = want
		}
	}
	t.Equal(c.At("results"), got)

	if after, ok := c.At("files_after").(map[string]any); ok {
		got := map[string]any{}
		for name := range after {
			if content, exists := b.read(t, name); exists {
				got[name] = content
			}
		}
		t.Equal(after, got)
	}
	checks, _ := c.At("check").(map[string]any)
	for name, check := range checks {
		check := check.(map[string]any)
		t.Equal(check["stdout"], corpus.Substitute(b.shell(t, check["command"].(string)), b.workdir, "<workdir>"))
		_ = name
	}
}

// isListing reports whether a recorded result lists a directory, whose entries come in any order.
func isListing(recorded any) bool {
	result, _ := recorded.(map[string]any)
	content, _ := result["content"].(string)
	return strings.HasPrefix(content, "<prose:directory-header ")
}

// resultForm converts a result into the recorded form. Of a result that ends the sample, only that fact is compared.
func resultForm(result *toolv1.ToolResult, want any) map[string]any {
	form := map[string]any{}
	if result.GetFailure() != nil {
		form["fatal"] = result.GetFailure().GetMessage()
		if recorded, ok := want.(map[string]any); ok && recorded["fatal"] != nil {
			form["fatal"] = recorded["fatal"]
		}
		return form
	}
	if text := result.GetContent().GetText(); text != "" || result.GetError() == nil {
		form["content"] = text
	}
	if fault := result.GetError(); fault != nil {
		form["error"] = errorForm(fault)
	}
	if cut := result.GetTruncation(); cut != nil {
		form["truncated"] = []any{cut.GetRawBytes(), cut.GetLimitBytes()}
	}
	return form
}

// fileContent returns the content of a recorded file: a text, or its bytes.
func fileContent(t *goldentest.T, recorded any) []byte {
	if object, ok := recorded.(map[string]any); ok && object["bytes"] != nil {
		if list, ok := object["bytes"].([]any); ok {
			content := make([]byte, len(list))
			for i, value := range list {
				number, err := value.(json.Number).Int64()
				if err != nil {
					t.Fatal(err)
				}
				content[i] = byte(number)
			}
			return content
		}
	}
	expanded, err := corpus.Expand(recorded)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(expanded.(string))
}
