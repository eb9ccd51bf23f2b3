// Package hosted describes tools that a vendor runs on its own servers: web search, a code interpreter, MCP servers. A
// client's offer of one becomes the tool that other vendors' providers know as their own, and what such a tool did is
// read and written in the formats of the vendors.
//
// Tools that the vendor's clients run are none of these: they are in pkg/dialect/clienttool.
package hosted

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Kinds of tools.
const (
	WebSearch     = "web_search"
	CodeExecution = "code_execution"
	// MCPServer is a server whose tools the vendor calls. The name of the tool ends with that of the server.
	MCPServer = "mcp_server"
	// WebFetch reads a page. No provider has it alone: it is part of a search.
	WebFetch = "web_fetch"
)

// Restrictions that change what a tool finds, so that a vendor without them cannot do what is asked for.
const (
	AllowedDomains = "allowed_domains"
	BlockedDomains = "blocked_domains"
	TimeRange      = "time_range"
	// Container is the container of an interpreter, or files in it, that the client's vendor keeps.
	Container = "container"
)

// Offer is a client's offer of a tool that its vendor runs.
type Offer struct {
	Kind string `json:"kind"`
	// Member is its place in the client's request, and Type the vendor's word for it.
	Member string `json:"member"`
	Type   string `json:"type"`
	// Restrictions are those of the tool, by their kinds, each with its member within the tool.
	Restrictions map[string]string `json:"restrictions,omitempty"`
	// Given is the tool as the client wrote it, without secrets: some formats repeat it in the answer. It may be empty.
	Given json.RawMessage `json:"given,omitempty"`
}

// option is the option of a tool that holds its Offer. Only a vendor can run a tool with this option.
const option = "hosted"

// Of returns the offer that a tool is; ok is false for a tool that its client, or the platform, can run.
func Of(tool *toolv1.ToolInfo) (offer Offer, ok bool) {
	options := tool.GetOptionsJson()
	if !strings.Contains(options, `"`+option+`"`) {
		return Offer{}, false
	}
	var own struct {
		Hosted *Offer `json:"hosted"`
	}
	if json.Unmarshal([]byte(options), &own) != nil || own.Hosted == nil {
		return Offer{}, false
	}
	return *own.Hosted, true
}

// Is reports whether a tool is the offer of one that its client's vendor runs.
func Is(tool *toolv1.ToolInfo) bool {
	_, ok := Of(tool)
	return ok
}

// Distinct returns the tools without offers whose name another tool has: a client's own tool has precedence over one of
// its vendor's, and of two offers the first counts. The list is not modified.
func Distinct(tools []*toolv1.ToolInfo) []*toolv1.ToolInfo {
	taken := map[string]bool{}
	for _, tool := range tools {
		if !Is(tool) {
			taken[tool.GetName()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(tools), func(tool *toolv1.ToolInfo) bool {
		if !Is(tool) {
			return false
		}
		again := taken[tool.GetName()]
		taken[tool.GetName()] = true
		return again
	})
}

// kindOption is the option by which providers know a search and an interpreter.
const kindOption = "__internal_tool_type__"

// vendors are the vendors with a search, by the names of their options, and executors those with an interpreter.
var (
	vendors   = []string{vendorOpenAI, vendorAnthropic, vendorGrok, vendorGemini, "mistral", "perplexity"}
	executors = []string{"openai", "anthropic", "google", "grok", "mistral", "python"}
)

const (
	vendorOpenAI    = "openai"
	vendorAnthropic = "anthropic"
	vendorGrok      = "grok"
	vendorGemini    = "gemini"
)

// search is what a client asks of a search, whichever vendor's it is.
type search struct {
	allowed, blocked []string
	place            *place
	size             string
	uses             *int64
	// noFetch means that no pages are to be read beside those in the vendor's index.
	noFetch bool
}

// place is the approximate location of the user.
type place struct {
	City     string `json:"city,omitempty"`
	Country  string `json:"country,omitempty"`
	Region   string `json:"region,omitempty"`
	Timezone string `json:"timezone,omitempty"`
}

// tool returns the tool for an offer of a search. own are the options for the vendor of the client's format, whose name
// is vendor.
func (s *search) tool(offer Offer, vendor string, own *orderedjson.Object) *toolv1.ToolInfo {
	offer.Kind = WebSearch
	options := new(orderedjson.Object).With(kindOption, WebSearch)
	for _, name := range vendors {
		if name == vendor {
			options.Set(name, own)
		} else {
			options.Set(name, s.options(name))
		}
	}
	return &toolv1.ToolInfo{
		Name: WebSearch, Description: "Searches the web.", OptionsJson: offer.mark(options),
		ParametersJson: `{"type":"object","properties":{"query":{"type":"string","description":"Search query."}},"required":["query"],"additionalProperties":false}`,
	}
}

// options are the options for a vendor. What it has no option for is left out: the cost of a search and the user's
// location are preferences. Restrictions, which must hold, are in the [Offer].
func (s *search) options(vendor string) *orderedjson.Object {
	o := &orderedjson.Object{}
	set := func(to *orderedjson.Object, name string, domains []string) {
		if domains != nil {
			to.Set(name, values(domains))
		}
	}
	switch vendor {
	case vendorOpenAI:
		filters := &orderedjson.Object{}
		if set(filters, "allowed_domains", s.allowed); filters.Len() > 0 {
			o.Set("filters", filters)
		}
		s.place.set(o)
		if s.size != "" {
			o.Set("search_context_size", s.size)
		}
	case vendorAnthropic:
		set(o, "allowed_domains", s.allowed)
		set(o, "blocked_domains", s.blocked)
		s.place.set(o)
		if s.uses != nil {
			o.Set("max_uses", json.Number(strconv.FormatInt(*s.uses, 10)))
		}
		if s.noFetch {
			o.Set(NoFetch, true)
		}
	case vendorGrok:
		set(o, "allowed_domains", s.allowed)
		set(o, "excluded_domains", s.blocked)
		if s.place != nil {
			for name, value := range s.place.object().All() {
				o.Set("user_location_"+name, value)
			}
		}
	case vendorGemini:
		set(o, "exclude_domains", s.blocked)
	}
	return o
}

// NoFetch is the option of Anthropic's search that leaves out the tool that reads pages.
const NoFetch = "no_fetch"

// object is the place as JSON.
func (p *place) object() *orderedjson.Object {
	object, _ := orderedjson.DecodeObject(jsonwrite.Marshal(p))
	return object
}

// set sets the place as OpenAI and Anthropic have it, if it is known.
func (p *place) set(o *orderedjson.Object) {
	if p == nil {
		return
	}
	located := new(orderedjson.Object).With("type", "approximate")
	for name, value := range p.object().All() {
		located.Set(name, value)
	}
	o.Set("user_location", located)
}

func values(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// interpreter returns the tool for an offer of an interpreter. own are the options for the vendor of the client's
// format.
func interpreter(offer Offer, vendor string, own *orderedjson.Object) *toolv1.ToolInfo {
	offer.Kind = CodeExecution
	by := &orderedjson.Object{}
	for _, name := range executors {
		if name == vendor {
			by.Set(name, own)
		} else {
			by.Set(name, &orderedjson.Object{})
		}
	}
	return &toolv1.ToolInfo{
		Name: CodeExecution, Description: "Runs Python.", OptionsJson: offer.mark(new(orderedjson.Object).With(kindOption, CodeExecution).With("providers", by)),
		ParametersJson: `{"type":"object","properties":{"code":{"type":"string","description":"The code to run."}},"required":["code"],"additionalProperties":false}`,
	}
}

// server is a server of tools as a client names it.
type server struct {
	name, url string
	headers   map[string]string
	// allowed are the names of the tools that may be called; nil is all.
	allowed []string
}

// tool returns the tool for an offer of a server.
func (s *server) tool(offer Offer) *toolv1.ToolInfo {
	offer.Kind = MCPServer
	options := new(orderedjson.Object).With("name", s.name).With("url", s.url)
	if len(s.headers) > 0 {
		headers, _ := orderedjson.DecodeObject(jsonwrite.Marshal(s.headers))
		options.Set("headers", headers)
	}
	if s.allowed == nil {
		options.Set("tools", "all")
	} else {
		options.Set("tools", values(s.allowed))
	}
	return &toolv1.ToolInfo{Name: MCPServer + "_" + s.name, Description: "Tools of a server.", ParametersJson: dialect.NoParameters, OptionsJson: offer.mark(options)}
}

// fetcher returns the tool for an offer to read pages.
func fetcher(offer Offer) *toolv1.ToolInfo {
	offer.Kind = WebFetch
	return &toolv1.ToolInfo{Name: WebFetch, Description: "Reads pages.", ParametersJson: dialect.NoParameters, OptionsJson: offer.mark(&orderedjson.Object{})}
}

// mark returns options, with the offer added, as a tool has them.
func (o Offer) mark(options *orderedjson.Object) string {
	own, _ := orderedjson.DecodeObject(jsonwrite.Marshal(o))
	return string(orderedjson.Append(nil, options.With(option, own)))
}

// restrict records a restriction, if the client has set it.
func (o *Offer) restrict(kind, member string, set bool) {
	if !set {
		return
	}
	if o.Restrictions == nil {
		o.Restrictions = map[string]string{}
	}
	o.Restrictions[kind] = member
}

// without returns an object without the members of these names.
func without(object *orderedjson.Object, names ...string) *orderedjson.Object {
	left := &orderedjson.Object{}
	for name, value := range object.All() {
		if !slices.Contains(names, name) {
			left.Set(name, value)
		}
	}
	return left
}
