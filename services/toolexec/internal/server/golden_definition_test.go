package server_test

import (
	"slices"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/enum"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
)

// TestGoldenBuiltinSchemas: a built-in tool with options in; its definition for the model out.
func TestGoldenBuiltinSchemas(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "schema_builtin", goldentest.Load(t, "tools/schema_builtin.json"), func(t *goldentest.T, c goldentest.Case) {
		response, err := newService(t, nil, builtins()...).ResolveTools(t.Context(), &toolv1.ResolveToolsRequest{
			Parent: parent,
			Tools:  []*toolv1.ToolRef{{Name: c.At("tool").(string), OptionsJson: string(document(t, c.At("options")))}},
		})
		if err != nil {
			t.Fatal(err)
		}
		infos, parallel := toldOf(response)
		t.Equal(c.At("tool_infos"), infos)
		if want := c.At("parallel"); want != nil {
			t.Equal(want, parallel)
		}
	})
}

// TestGoldenViews: a call of a built-in tool in; how it is shown to a person out.
func TestGoldenViews(t *testing.T) {
	t.Parallel()
	cases := slices.DeleteFunc(goldentest.Load(t, "tools/viewers.json"), func(c goldentest.Case) bool { return c.Op() != "view of a built-in tool" })
	goldentest.Run(t, "viewers", cases, func(t *goldentest.T, c goldentest.Case) {
		function := c.At("function").(string)
		response, err := newService(t, nil, builtins()...).ReviewTools(t.Context(), &toolv1.ReviewToolsRequest{
			Parent: parent,
			Tools:  []*toolv1.ToolRef{{Name: function}},
			Calls:  []*toolv1.ToolCall{{Id: "c1", Function: function, ArgumentsJson: string(document(t, c.At("arguments")))}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if shown := response.GetReviews()[0].GetView().GetCall(); shown != nil {
			form := map[string]any{"format": enum.Word(shown.GetFormat()), "content": shown.GetContent()}
			if shown.GetTitle() != "" {
				form["title"] = shown.GetTitle()
			}
			got = map[string]any{"call": form}
		}
		t.Equal(c.At("result"), got)
	})
}
