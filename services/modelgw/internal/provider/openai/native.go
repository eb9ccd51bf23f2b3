package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

// Tools that OpenAI's servers run: https://platform.openai.com/docs/guides/tools.
const (
	searchTool = "web_search"
	codeTool   = "code_interpreter"
	mcpTool    = "mcp"
	computer   = "computer"
	// searchChoice is the type by which a choice names the search.
	searchChoice = "web_search_preview"
)

// toolPrefixes begin the names of models older than gpt-5 with which the servers run tools.
var toolPrefixes = []string{"gpt-4o", "gpt-4.1", "o3", "o4-mini"}

// runsTools reports whether the servers run tools with the model.
func (m *model) runsTools() bool {
	for _, prefix := range toolPrefixes {
		if strings.HasPrefix(m.served, prefix) {
			return true
		}
	}
	return name{id: m.served}.generation() >= 5
}

// controlsComputers reports whether a computer is offered in the model's own form. Its calls need answers that the
// server stores, so that it is a function where storing is refused.
func (m *model) controlsComputers() bool {
	refused := m.args.ResponsesStore != nil && !*m.args.ResponsesStore
	return !refused && m.name.controlsComputers()
}

// hosted are the tools that the servers run with the model: none where the server is not known to have the Responses
// API.
func (m *model) hosted(c *modelv1.GenerateConfig) provider.Hosted {
	if !m.byName && !m.usesResponses(c) {
		return provider.Hosted{}
	}
	h := provider.Hosted{Restrictions: []string{hosted.AllowedDomains, hosted.Container}}
	if m.runsTools() {
		h.Kinds = append(h.Kinds, provider.WebSearch, provider.CodeExecution)
	}
	if !m.noServers {
		h.Kinds = append(h.Kinds, provider.MCPServer)
	}
	return h
}

// native are the tools of a request that the servers run themselves, by their names.
func (m *model) native(r *provider.Request) map[string]openairesponses.Native {
	wanted := provider.WantsNative(r.Config)
	all := map[string]openairesponses.Native{}
	for _, tool := range r.Tools {
		switch kind := provider.NativeTool(tool, Name, Name); {
		case kind == provider.MCPServer:
			if server, ok := provider.NewRemoteMCP(tool); ok {
				all[tool.GetName()] = openairesponses.Native{JSON: mcpServer(server), Choice: mcpTool, Server: server.Name}
			}
		case !wanted:
		case kind == provider.Computer:
			if m.controlsComputers() {
				all[tool.GetName()] = openairesponses.Native{JSON: `{"type":"` + computer + `"}`, Choice: computer, Computer: true}
			}
		case !m.runsTools():
		case kind == provider.WebSearch:
			search := responsesapi.ServerTool(searchTool, tool.GetOptionsJson())
			all[tool.GetName()] = openairesponses.Native{JSON: search, Choice: searchChoice, Sources: hosted.Is(tool)}
		case kind == provider.CodeExecution:
			all[tool.GetName()] = openairesponses.Native{JSON: interpreter(tool), Choice: codeTool}
		}
	}
	return all
}

// refuseServers refuses servers of tools where the API calls none.
func (m *model) refuseServers(r *provider.Request) error {
	for _, tool := range r.Tools {
		if m.noServers && provider.NativeTool(tool, Name, Name) == provider.MCPServer {
			why := rpcerr.CapabilityUnsupported("tools", "%s/%s calls no servers of tools: %s", Name, m.name.id, tool.GetName())
			return rpcerr.In("tools", why)
		}
	}
	return nil
}

// generateForTools makes an attempt with the Responses API for tools that only it has, though the model is used by chat
// completions. It warns of options that only chat completions have.
func (m *model) generateForTools(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	other := *m
	other.args.ResponsesAPI, other.forTools = new(true), true
	fitted := provider.Fit(&other, r.Config)
	response, err := other.generateResponses(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, option := range fitted.Unsent {
		warning := fmt.Sprintf("%s is not sent to %s, %s: tools that the server runs need the Responses API",
			option.Option, m.name.id, option.Why)
		response.Warnings = append(response.Warnings, warning)
	}
	for _, change := range fitted.Changed {
		response.Warnings = append(response.Warnings, fmt.Sprintf("%s %s is sent to %s as %s", change.GetOption(), change.GetAsked(), m.name.id, change.GetSent()))
	}
	return response, nil
}

// interpreter is the server's interpreter, in a container of its own unless the options name one.
func interpreter(tool *toolv1.ToolInfo) string {
	var options struct {
		Providers struct {
			OpenAI json.RawMessage `json:"openai"`
		} `json:"providers"`
	}
	var own struct {
		Container json.RawMessage `json:"container"`
	}
	container := `{"type":"auto"}`
	if json.Unmarshal([]byte(tool.GetOptionsJson()), &options) == nil && json.Unmarshal(options.Providers.OpenAI, &own) == nil && len(own.Container) > 0 {
		container = string(own.Container)
	}
	return `{"type":"` + codeTool + `","container":` + container + `}`
}

// mcpServer is a server whose tools OpenAI calls. It never asks for an approval: no caller could give one.
func mcpServer(server provider.RemoteMCP) string {
	w := jsonwrite.NewWriter(256)
	w.BeginObject()
	w.TextMember("type", mcpTool)
	w.TextMember("server_label", server.Name)
	w.TextMember("server_url", server.URL)
	if len(server.Headers) > 0 {
		w.RawMember("headers", string(jsonwrite.Marshal(server.Headers)))
	}
	if allowed := server.Allowed(); allowed != nil {
		w.Key("allowed_tools")
		w.Texts(allowed)
	}
	w.TextMember("require_approval", "never")
	w.EndObject()
	return w.String()
}
