package provider

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/toolname"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Kinds of tools that vendors run themselves, or that their models were trained with. The options of a search or of an
// interpreter name the kind.
const (
	WebSearch     = hosted.WebSearch
	CodeExecution = hosted.CodeExecution
	Computer      = "computer"
	Memory        = "memory"
	TextEditor    = "text_editor"
	// MCPServer is a server whose tools the vendor calls; the tool's options are its address.
	MCPServer = hosted.MCPServer
)

// Hosted are the tools that a model's vendor runs, for clients that offer their own vendor's ([hosted.Offer]). The zero
// value is that of a vendor that runs none.
type Hosted struct {
	// Kinds are the kinds of tools: WebSearch, CodeExecution, MCPServer.
	Kinds []string
	// Restrictions are the kinds of restrictions that the vendor's tools support, such as [hosted.AllowedDomains].
	Restrictions []string
	// Exclusive means that a request has either such tools or functions, but not both.
	Exclusive bool
	// NoHistory means that the API refuses a conversation which contains what a vendor's tools did.
	NoHistory bool
}

// Lacks reports whether an offer among these tools is of a tool that the vendor does not run.
func (h Hosted) Lacks(offer hosted.Offer, tools []*toolv1.ToolInfo) bool {
	isFunction := func(tool *toolv1.ToolInfo) bool { return !hosted.Is(tool) }
	return !slices.Contains(h.Kinds, offer.Kind) || h.Exclusive && slices.ContainsFunc(tools, isFunction)
}

// Unmet is the member of an offer with a restriction that the vendor's tool lacks; empty if there is none. Of several
// it is the first by kind.
func (h Hosted) Unmet(offer hosted.Offer) string {
	for _, kind := range slices.Sorted(maps.Keys(offer.Restrictions)) {
		if !slices.Contains(h.Restrictions, kind) {
			return offer.Member + "." + offer.Restrictions[kind]
		}
	}
	return ""
}

// known are the sorted parameters of tools whose vendors' forms have exactly these: what else a tool of such a name
// takes would not reach the model. Those of the text editor are the vendor's; the platform's own has one more.
var known = map[string][]string{
	Computer: {
		"action", "actions", "coordinate", "duration", "press_enter", "region", "repeat", "scroll_amount", "scroll_direction", "start_coordinate", "text",
	},
	Memory: {
		"command", "file_text", "insert_line", "insert_text", "new_path", "new_str", "old_path", "old_str", "path", "view_range",
	},
	TextEditor: {"command", "file_text", "insert_line", "new_str", "old_str", "path", "view_range"},
}

// WantsNative reports whether tools may be replaced by the vendor's own forms of them, which is the default.
func WantsNative(c *modelv1.GenerateConfig) bool {
	return c == nil || c.InternalTools == nil || c.GetInternalTools()
}

// NativeTool returns the kind of a tool that a vendor may have itself; empty for all others. searchers and executors
// are the vendor's names in the options of web search and of code execution.
func NativeTool(tool *toolv1.ToolInfo, searchers, executors string) string {
	name := tool.GetName()
	if parameters, ok := known[name]; ok {
		if slices.Equal(parameters, parametersOf(tool)) {
			return name
		}
		return ""
	}
	if strings.HasPrefix(name, MCPServer+"_") && tool.GetOptionsJson() != "" && len(toolname.Of([]*toolv1.ToolInfo{tool})) == 0 {
		return MCPServer // Otherwise the options are a client's name for its own tool.
	}
	var options struct {
		Kind      string                     `json:"__internal_tool_type__"`
		Providers map[string]json.RawMessage `json:"providers"`
	}
	var own map[string]json.RawMessage
	document := []byte(tool.GetOptionsJson())
	if json.Unmarshal(document, &options) != nil || json.Unmarshal(document, &own) != nil || options.Kind != name {
		return ""
	}
	allowed := map[string]json.RawMessage{WebSearch: own[searchers], CodeExecution: options.Providers[executors]}[options.Kind]
	if len(allowed) == 0 || string(allowed) == "false" {
		return ""
	}
	return options.Kind
}

// parametersOf returns the sorted names of a tool's parameters.
func parametersOf(tool *toolv1.ToolInfo) []string {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal([]byte(tool.GetParametersJson()), &schema)
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// RemoteMCP is the address of a server whose tools a vendor calls, as the options of a tool of the kind MCPServer hold
// it.
type RemoteMCP struct {
	Name    string            `json:"name"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	// Tools are the names of those that may be called, or a text for all.
	Tools json.RawMessage `json:"tools"`
}

// NewRemoteMCP reads the options of a tool of the kind MCPServer; ok is false where they have no address.
func NewRemoteMCP(tool *toolv1.ToolInfo) (server RemoteMCP, ok bool) {
	err := json.Unmarshal([]byte(tool.GetOptionsJson()), &server)
	return server, err == nil && server.Name != "" && server.URL != ""
}

// Allowed are the names of the tools that may be called; nil is all.
func (s RemoteMCP) Allowed() (names []string) {
	_ = json.Unmarshal(s.Tools, &names)
	return names
}

// OtherHeaders are the sorted names of the headers beside Authorization.
func (s RemoteMCP) OtherHeaders() []string {
	var names []string
	for name := range s.Headers {
		if !strings.EqualFold(name, "Authorization") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Token is the token of the header Authorization, without the word Bearer; empty if there is none.
func (s RemoteMCP) Token() string {
	token := ""
	for name, value := range s.Headers {
		if strings.EqualFold(name, "Authorization") {
			token = value
		}
	}
	if scheme := len("Bearer "); len(token) >= scheme && strings.EqualFold(token[:scheme], "Bearer ") {
		return token[scheme:]
	}
	return token
}
