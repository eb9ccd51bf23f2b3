package anthropic

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
)

// form is a tool of the server, in the versions of which each model has one:
// https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview.
type form struct {
	json string
	// name is the name by which the model calls the tool, if it is another than the offered one.
	name string
	// beta is the feature that enables the tool; empty for none.
	beta string
}

// The screen is the one of the platform's tool `computer`: its screenshots are scaled to this size.
const screen = `"name":"computer","display_width_px":1366,"display_height_px":768,"display_number":1`

var (
	computer    = form{`{"type":"computer_20251124",` + screen + `,"enable_zoom":true}`, "", betaComputer}
	computerOld = form{`{"type":"computer_20250124",` + screen + `}`, "", betaComputerOld}
	computerSet = form{`{"type":"computer_toolset_20260801"}`, "", ""}
	memory      = form{`{"type":"memory_20250818","name":"memory"}`, "", betaMemory}
	code        = form{`{"type":"code_execution_20250825","name":"code_execution"}`, "", betaCode}
	editor      = form{`{"type":"text_editor_20250728","name":"` + editorName + `"}`, editorName, ""}
	editor37    = form{`{"type":"text_editor_20250124","name":"` + editorNameOld + `"}`, editorNameOld, ""}
	editor35    = form{`{"type":"text_editor_20241022","name":"` + editorNameOld + `"}`, editorNameOld, betaEditorOld}
)

// Names under which models know the text editor.
const (
	editorName    = "str_replace_based_edit_tool"
	editorNameOld = "str_replace_editor"
)

// tool returns the model's form of a tool that is one for all requests; ok is false if it has none.
func (g generation) tool(kind string) (f form, ok bool) {
	named := g.Version < claude.Frontier // What models with a code name run is not known.
	switch kind {
	case provider.Computer:
		if g.Version >= 46 || g.Is(claude.Opus, 45, 46) {
			if g.usesToolset() {
				return computerSet, true
			}
			return computer, true
		}
		return computerOld, g.Version >= 37
	case provider.Memory:
		return memory, named && g.Version >= 40
	case provider.CodeExecution:
		return code, named && g.Version >= 37 || g.Is(claude.Haiku, 35, 37)
	case provider.TextEditor:
		switch {
		case g.Version >= 40:
			return editor, true
		case g.Version >= 37:
			return editor37, true
		default:
			return editor35, g.Is(claude.Sonnet, 35, 37)
		}
	default:
		return form{}, false
	}
}

// usesToolset reports whether the model controls a computer by a set of tools in place of one tool.
func (g generation) usesToolset() bool {
	return g.Version >= 50 && g.Version < claude.Frontier && !g.Is(claude.Opus, 50, 55) && !g.Is(claude.Sonnet, 50, 55)
}

// hosted are the tools that the server runs with the model.
func (m *model) hosted() provider.Hosted {
	h := provider.Hosted{Restrictions: []string{hosted.AllowedDomains, hosted.BlockedDomains}}
	add := func(kind string, runs bool) {
		if runs && !slices.Contains(m.site.noTools, kind) {
			h.Kinds = append(h.Kinds, kind)
		}
	}
	_, runsCode := m.generation.tool(provider.CodeExecution)
	add(provider.WebSearch, m.generation.searches())
	add(provider.CodeExecution, runsCode)
	add(provider.MCPServer, !m.site.noServers)
	return h
}

// searches reports whether the server searches the web with the model.
func (g generation) searches() bool { return g.Version >= 35 }

// native maps tools of the request to those that the server has itself. It returns the member of the request that names
// the servers whose tools it calls.
func (m *model) native(p *plan) ([]dialect.Member, error) {
	p.Native, p.offered = map[string][]string{}, map[string]string{}
	var servers []string
	var left []*toolv1.ToolInfo
	for _, tool := range p.Tools {
		kind := provider.NativeTool(tool, Name, Name)
		if kind == provider.MCPServer {
			if m.site.noServers {
				return nil, rpcerr.In("tools", rpcerr.CapabilityUnsupported("tools", "%s/%s%s calls no servers of tools: %s", Name, m.site.prefix, m.name, tool.GetName()))
			}
			server, ok := provider.NewRemoteMCP(tool)
			if !ok {
				return nil, rpcerr.InvalidField("tools", "the options of %s name no server of tools: name and url are missing", tool.GetName())
			}
			servers = append(servers, mcpServer(server))
			if other := server.OtherHeaders(); len(other) > 0 {
				p.warnings = append(p.warnings, fmt.Sprintf("%s calls %s without the headers %s: only Authorization is sent on", m.name, tool.GetName(), strings.Join(other, ", ")))
			}
			if p.Choice.GetFunction() == tool.GetName() { // The names of its tools are not known.
				p.Choice = nil
				p.warnings = append(p.warnings, fmt.Sprintf("%s cannot be made to call the server of tools %s; the choice is left to it", m.name, tool.GetName()))
			}
			continue
		}
		left = append(left, tool)
		if !provider.WantsNative(p.Config) || kind == "" || slices.Contains(m.site.noTools, kind) {
			continue
		}
		if kind == provider.WebSearch && m.generation.searches() {
			if err := m.search(p, tool); err != nil {
				return nil, err
			}
			continue
		}
		own, ok := m.generation.tool(kind)
		switch {
		case !ok:
			continue
		case own == computerSet && m.site.noToolset: // Such a cloud takes the one tool.
			own = computer
		case own == computerSet:
			p.Toolset = tool.GetName()
		}
		p.Native[tool.GetName()] = []string{own.json}
		p.enable(own.beta)
		if own.name != "" {
			p.offered[own.name] = tool.GetName()
		}
	}
	p.Tools = left
	if len(servers) == 0 {
		return nil, nil
	}
	p.enable(betaMCP)
	return []dialect.Member{{Name: "mcp_servers", JSON: "[" + strings.Join(servers, ",") + "]"}}, nil
}

func (p *plan) enable(beta string) { p.betas = append(p.betas, beta) }

// Types of web search and of the tool that reads pages, by the date of their versions. The newer ones filter what they
// find by code.
const (
	searchDate, filterDate = "20250305", "20260209"
	fetchDate              = "20250910"
	searchType, fetchType  = "web_search_", "web_fetch_"
)

// searchOptions are the options of web search and of the tool that reads pages, and which of the two take them.
var searchOptions = []struct {
	name          string
	search, fetch bool
}{
	{"allowed_domains", true, true},
	{"blocked_domains", true, true},
	{"max_uses", true, true},
	{"allowed_callers", true, true},
	{"user_location", true, false},
	{"cache_control", true, false},
	{"citations", false, true},
	{"max_content_tokens", false, true},
}

// callers may call a search that is demanded: without them only code may call the newer one.
const callers = "allowed_callers"

// search maps a search to the server's, and to the tool that reads the pages that were found.
func (m *model) search(p *plan, tool *toolv1.ToolInfo) error {
	document, err := orderedjson.DecodeObject([]byte(tool.GetOptionsJson()))
	if err != nil {
		return rpcerr.InvalidField("tools", "the options of %s are no JSON object: %v", tool.GetName(), err)
	}
	given, _ := document.Get(Name)
	options, ok := given.(*orderedjson.Object)
	if !ok {
		options = &orderedjson.Object{}
	}
	filters := m.generation.Version >= 46 && !m.site.noFilters
	if version, asked := options.Get("type"); asked {
		if filters = version == searchType+filterDate; !filters && version != searchType+searchDate {
			return rpcerr.InvalidField("tools", "%v is no type of web search; there are %s and %s", version, searchType+searchDate, searchType+filterDate)
		}
	}
	search, fetch := &orderedjson.Object{}, &orderedjson.Object{}
	unread, _ := options.Get(hosted.NoFetch)
	fetch.Set("name", "web_fetch")
	search.Set("name", provider.WebSearch)
	if filters {
		fetch.Set("type", fetchType+filterDate)
		search.Set("type", searchType+filterDate)
	} else {
		fetch.Set("type", fetchType+fetchDate)
		search.Set("type", searchType+searchDate)
		if unread != true {
			p.enable(betaFetch)
		}
	}
	for _, option := range searchOptions {
		value, given := options.Get(option.name)
		if !given {
			continue
		}
		if option.search {
			search.Set(option.name, value)
		}
		if option.fetch {
			fetch.Set(option.name, value)
		}
	}
	demanded := p.Choice.GetFunction() == tool.GetName() && !m.generation.RefusesForce()
	if _, given := search.Get(callers); !given && filters && demanded {
		search.Set(callers, []any{"direct", "code_execution_20260120"})
	}
	forms := []string{string(orderedjson.Append(nil, fetch)), string(orderedjson.Append(nil, search))}
	if unread == true {
		forms = forms[1:]
	}
	p.Native[tool.GetName()] = forms
	return nil
}

// mcpServer is a server whose tools Anthropic calls.
func mcpServer(server provider.RemoteMCP) string {
	w := jsonwrite.NewWriter(256)
	w.BeginObject()
	w.TextMember("type", "url")
	w.TextMember("name", server.Name)
	w.TextMember("url", server.URL)
	w.TextUnlessEmpty("authorization_token", server.Token())
	if allowed := server.Allowed(); allowed != nil {
		w.Key("tool_configuration")
		w.BeginObject()
		w.BoolMember("enabled", true)
		w.Key("allowed_tools")
		w.Texts(allowed)
		w.EndObject()
	}
	w.EndObject()
	return w.String()
}
