package google

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// searcher is the name of Google's search in the options of a tool.
const searcher = "gemini"

// searchOption is an option of Google's search. Its name, and that of the member, are names of it.
type searchOption struct {
	name, member string
	onVertex     bool
}

// searchOptions are the options of Google's search. Each has its place:
// https://ai.google.dev/api/caching#GoogleSearch and
// https://cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1/Tool#GoogleSearch.
var searchOptions = []searchOption{
	{name: "time_range_filter", member: "timeRangeFilter"},
	{name: "search_types", member: "searchTypes"},
	{name: "exclude_domains", member: "excludeDomains", onVertex: true},
	{name: "blocking_confidence", member: "blockingConfidence", onVertex: true},
}

// searchOptions returns the options of a tool for Google's search, as the members of the search. One that is null is
// not set. It fails for an option that the search does not have where the model is served.
func (m *model) searchOptions(tool *toolv1.ToolInfo) (*orderedjson.Object, error) {
	sent := &orderedjson.Object{}
	options, err := orderedjson.DecodeObject([]byte(tool.GetOptionsJson()))
	if err != nil {
		return sent, nil //nolint:nilerr // Then there are none.
	}
	own, _ := options.Get(searcher)
	given, ok := own.(*orderedjson.Object)
	if !ok {
		return sent, nil
	}
	for name, value := range given.All() {
		if value == nil {
			continue
		}
		i := slices.IndexFunc(searchOptions, func(o searchOption) bool { return o.name == name || o.member == name })
		if i < 0 || searchOptions[i].onVertex != m.onVertex {
			return nil, rpcerr.In("tools", rpcerr.CapabilityUnsupported("tools", "the search of %s/%s has no option %s; leave it out of the options of %s", Name, m.name, name, tool.GetName()))
		}
		sent.Set(searchOptions[i].member, value)
	}
	return sent, nil
}

// hosted are the tools that the server runs with the model.
func (m *model) hosted() provider.Hosted {
	h := provider.Hosted{Exclusive: !m.name.mixesTools(), Restrictions: []string{hosted.TimeRange}}
	if m.name.runsTools() {
		h.Kinds = []string{provider.WebSearch, provider.CodeExecution}
	}
	if m.onVertex {
		h.Restrictions = []string{hosted.BlockedDomains}
	}
	return h
}

// native replaces tools of the request by those that the server runs itself, as far as their options allow it and the
// model has them. It fails if the model cannot have both these and functions.
func (m *model) native(request *format.Request) error {
	if !m.name.runsTools() {
		return nil
	}
	var functions []*toolv1.ToolInfo
	for _, tool := range request.Tools {
		switch provider.NativeTool(tool, searcher, "google") {
		case provider.WebSearch:
			options, err := m.searchOptions(tool)
			if err != nil {
				return err
			}
			request.Search, request.SearchOptions = true, options
		case provider.CodeExecution:
			request.Execution = true
		case provider.Computer:
			if !m.name.controlsComputers() {
				functions = append(functions, tool)
				continue
			}
			request.Computer, request.Messages = tool.GetName(), toServer(request.Messages, tool.GetName())
			if request.Choice.GetFunction() == tool.GetName() {
				request.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO) // No choice can name the server's functions.
			}
		default:
			functions = append(functions, tool)
		}
	}
	request.Tools = functions
	if request.Computer != "" && request.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO {
		request.Choice = nil // It is the default, also beside the server's functions.
	}
	if len(functions) > 0 && (request.Search || request.Execution) && !m.name.mixesTools() {
		return rpcerr.In("tools", rpcerr.CapabilityUnsupported("tools",
			"%s/%s takes functions or tools that Google runs, not both; use Gemini 3 or later, or a provider of the tool's options other than Google", Name, m.name))
	}
	return nil
}
