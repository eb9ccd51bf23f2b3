package hosted

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Types of tools of OpenAI's Responses API. That of a search may have the date of a version behind it.
const (
	openaiSearch = "web_search"
	openaiCode   = "code_interpreter"
	openaiMCP    = "mcp"
	// openaiSearchChoice is the type by which a choice names a search.
	openaiSearchChoice = "web_search_preview"
)

// IsOpenAIOffer reports whether a tool of the Responses API, by its type, is one that OpenAI runs and others have too.
func IsOpenAIOffer(kind string) bool {
	return strings.HasPrefix(kind, openaiSearch) || kind == openaiCode || kind == openaiMCP
}

// OpenAIOffer reads a tool of the Responses API of such a type, which is at member of the request. Errors name members
// of the tool. It is nil for a tool that no other vendor can run: a connector, and a server whose calls the client
// approves.
func OpenAIOffer(kind string, raw json.RawMessage, member string) (*toolv1.ToolInfo, error) {
	object, err := orderedjson.DecodeObject(raw)
	if err != nil {
		return nil, dialect.Invalid("", "is no object")
	}
	offer := Offer{Member: member, Type: kind, Given: given(object, "headers", "authorization")}
	switch {
	case kind == openaiCode:
		offer.restrict(Container, "container", keepsFiles(object))
		return interpreter(offer, vendorOpenAI, without(object, "type")), nil
	case kind == openaiMCP:
		return openaiServer(offer, raw)
	}
	var w struct {
		Filters struct {
			Allowed []string `json:"allowed_domains"`
			Blocked []string `json:"blocked_domains"`
		} `json:"filters"`
		Place *place `json:"user_location"`
		Size  string `json:"search_context_size"`
		// Live is false for a search that reads no pages but those in the vendor's index.
		Live *bool `json:"external_web_access"`
	}
	if err := read(raw, "", &w); err != nil {
		return nil, err
	}
	offer.restrict(AllowedDomains, "filters."+AllowedDomains, w.Filters.Allowed != nil)
	offer.restrict(BlockedDomains, "filters."+BlockedDomains, w.Filters.Blocked != nil)
	s := &search{allowed: w.Filters.Allowed, blocked: w.Filters.Blocked, place: w.Place, size: w.Size, noFetch: w.Live != nil && !*w.Live}
	return s.tool(offer, vendorOpenAI, without(object, "type")), nil
}

// ChatOffer reads the member web_search_options of chat completions.
func ChatOffer(raw json.RawMessage) (*toolv1.ToolInfo, error) {
	const member = "web_search_options"
	var w struct {
		Size  string `json:"search_context_size"`
		Place *struct {
			Approximate *place `json:"approximate"`
		} `json:"user_location"`
	}
	if err := read(raw, member, &w); err != nil {
		return nil, err
	}
	s := &search{size: w.Size}
	if w.Place != nil {
		s.place = w.Place.Approximate
	}
	return s.tool(Offer{Member: member, Type: member}, "", nil), nil
}

// keepsFiles reports whether an interpreter is to run in a container, or with files, that OpenAI keeps.
func keepsFiles(tool *orderedjson.Object) bool {
	switch container, _ := tool.Get("container"); container := container.(type) {
	case string:
		return true
	case *orderedjson.Object:
		files, _ := container.Get("file_ids")
		list, _ := files.([]any)
		return len(list) > 0
	default:
		return false
	}
}

func openaiServer(offer Offer, raw json.RawMessage) (*toolv1.ToolInfo, error) {
	var w struct {
		Label     string            `json:"server_label"`
		URL       string            `json:"server_url"`
		Connector string            `json:"connector_id"`
		Headers   map[string]string `json:"headers"`
		Token     string            `json:"authorization"`
		Allowed   json.RawMessage   `json:"allowed_tools"`
		Approval  json.RawMessage   `json:"require_approval"`
	}
	if err := read(raw, "", &w); err != nil {
		return nil, err
	}
	var approval string
	_ = json.Unmarshal(w.Approval, &approval) // An object asks for some approvals.
	if w.Connector != "" || w.URL == "" || approval != "never" {
		return nil, nil
	}
	if w.Label == "" {
		return nil, dialect.Required("server_label")
	}
	s := &server{name: w.Label, url: w.URL, headers: w.Headers}
	if w.Token != "" {
		s.headers = map[string]string{}
		maps.Copy(s.headers, w.Headers)
		s.headers["Authorization"] = "Bearer " + w.Token
	}
	if jsonread.IsSet(w.Allowed) {
		var filter struct {
			Names []string `json:"tool_names"`
		}
		if json.Unmarshal(w.Allowed, &s.allowed) != nil {
			if json.Unmarshal(w.Allowed, &filter) != nil || filter.Names == nil {
				return nil, dialect.NotSupported("allowed_tools", "must be a list of names here")
			}
			s.allowed = filter.Names
		}
	}
	return s.tool(offer), nil
}

// OpenAIChoice returns the name of the offered tool that a choice of the Responses API names by its type, or by the
// label of its server; empty if it names none.
func OpenAIChoice(kind, label string, tools []*toolv1.ToolInfo) string {
	for _, tool := range tools {
		offer, ok := Of(tool)
		switch {
		case !ok:
		case offer.Kind == MCPServer && kind == openaiMCP && tool.GetName() == MCPServer+"_"+label,
			offer.Kind == WebSearch && strings.HasPrefix(kind, openaiSearch),
			offer.Kind == CodeExecution && kind == openaiCode:
			return tool.GetName()
		}
	}
	return ""
}

// OpenAIChosen is the choice of an offered tool by its name as the Responses API repeats it: the type, and the label of
// a server. Both are empty if no tool of that name is an offer.
func OpenAIChosen(name string, tools []*toolv1.ToolInfo) (kind, label string) {
	at := slices.IndexFunc(tools, func(tool *toolv1.ToolInfo) bool { return tool.GetName() == name && Is(tool) })
	if at < 0 {
		return "", ""
	}
	switch offer, _ := Of(tools[at]); offer.Kind {
	case WebSearch:
		return openaiSearchChoice, ""
	case MCPServer:
		return openaiMCP, strings.TrimPrefix(name, MCPServer+"_")
	default:
		return openaiCode, ""
	}
}
