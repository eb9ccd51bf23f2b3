package hosted

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// idOf is an id with the prefix that a vendor demands, of letters, digits and low lines.
func idOf(prefix, id string) string {
	if strings.HasPrefix(id, prefix) {
		return id
	}
	return prefix + strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, id)
}

// Query is what a search was for: a query, a page that it opened, or what it looked for in one.
func Query(use *contentv1.ToolUse) string {
	var asked struct {
		Query   string   `json:"query"`
		Queries []string `json:"queries"`
		Pattern string   `json:"pattern"`
		URL     string   `json:"url"`
	}
	if json.Unmarshal([]byte(use.GetArguments()), &asked) != nil {
		return use.GetArguments()
	}
	for _, said := range append([]string{asked.Query}, append(asked.Queries, asked.Pattern, asked.URL)...) {
		if said != "" {
			return said
		}
	}
	return ""
}

// Sources are the pages that a search found, as far as its vendor says.
func Sources(use *contentv1.ToolUse) []citation.Source {
	if use.GetToolType() != contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH {
		return nil
	}
	var pages []citation.Source
	if _ = json.Unmarshal([]byte(use.GetResult()), &pages); len(pages) == 0 {
		pages, _ = sourcesOf(use.GetArguments())
	}
	return slices.DeleteFunc(pages, func(page citation.Source) bool { return page.URL == "" })
}

// sourcesOf are the pages that the action of OpenAI's search names; ok is false if it names none.
func sourcesOf(arguments string) (pages []citation.Source, ok bool) {
	var action struct {
		Sources []citation.Source `json:"sources"`
	}
	_ = json.Unmarshal([]byte(arguments), &action)
	return action.Sources, action.Sources != nil
}

// Code is the code that an interpreter ran.
func Code(use *contentv1.ToolUse) string {
	if !jsonread.IsObject(use.GetArguments()) || !IsAnthropicResult(use.GetResult()) {
		return use.GetArguments()
	}
	var asked struct {
		Code    string `json:"code"`
		Command string `json:"command"`
	}
	if json.Unmarshal([]byte(use.GetArguments()), &asked) != nil || asked.Code+asked.Command == "" {
		return use.GetArguments()
	}
	return asked.Code + asked.Command
}

// Output is what code wrote; if it wrote nothing and failed, what is known of the failure.
func Output(use *contentv1.ToolUse) string { return cmp.Or(written(use), use.GetError()) }

func written(use *contentv1.ToolUse) string {
	if !IsAnthropicResult(use.GetResult()) {
		return use.GetResult()
	}
	var block struct {
		Content struct {
			Stdout string `json:"stdout"`
			Stderr string `json:"stderr"`
			Code   string `json:"error_code"`
		} `json:"content"`
	}
	if json.Unmarshal([]byte(use.GetResult()), &block) != nil || block.Content.Stdout+block.Content.Stderr+block.Content.Code == "" {
		return ""
	}
	return block.Content.Stdout + block.Content.Stderr + block.Content.Code
}

// GeminiSearch is the search that a grounding describes, if a client has offered one; nil if there is none. The
// platform's own callers see the citations of Google's search alone.
func GeminiSearch(g *citation.Grounding, tools []*toolv1.ToolInfo) *contentv1.Content {
	isSearch := func(tool *toolv1.ToolInfo) bool {
		offer, ok := Of(tool)
		return ok && offer.Kind == WebSearch
	}
	if g == nil || len(g.Queries) == 0 || !slices.ContainsFunc(tools, isSearch) {
		return nil
	}
	arguments := new(orderedjson.Object).With("query", g.Queries[0])
	if len(g.Queries) > 1 {
		arguments.Set("queries", values(g.Queries))
	}
	return chat.ToolUsePart(&contentv1.ToolUse{
		ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH, Id: chat.NewID(), Name: WebSearch,
		Arguments: string(orderedjson.Append(nil, arguments)), Result: string(jsonwrite.Marshal(g.Sources())),
	})
}
