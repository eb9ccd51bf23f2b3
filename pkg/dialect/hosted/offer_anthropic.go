package hosted

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Types of tools of Anthropic's API, which end with the date of their version.
const (
	anthropicSearch  = "web_search_"
	anthropicFetch   = "web_fetch_"
	anthropicCode    = "code_execution_"
	anthropicToolset = "mcp_toolset"
)

// IsAnthropicOffer reports whether a tool of Anthropic's API, by its type, is one that Anthropic runs and others have
// too.
func IsAnthropicOffer(kind string) bool {
	return kind == anthropicToolset || slices.ContainsFunc([]string{anthropicSearch, anthropicFetch, anthropicCode}, func(prefix string) bool {
		return strings.HasPrefix(kind, prefix)
	})
}

// AnthropicOffers reads the tools that Anthropic runs from the members tools, each a document, and mcp_servers of a
// request to its API. Offered are those of tools, by index; called are the servers. Errors name the member.
func AnthropicOffers(tools []json.RawMessage, servers json.RawMessage) (offered map[int]*toolv1.ToolInfo, called []*toolv1.ToolInfo, err error) {
	offered = map[int]*toolv1.ToolInfo{}
	types := make([]string, len(tools))
	for i, raw := range tools {
		var head struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal(raw, &head) // It has been read already.
		types[i] = head.Type
	}
	offers := func(prefix string) bool {
		return slices.ContainsFunc(types, func(kind string) bool { return strings.HasPrefix(kind, prefix) })
	}
	var sets []toolset
	for i, raw := range tools {
		offer := Offer{Member: fmt.Sprintf("tools.%d", i), Type: types[i]}
		switch kind := types[i]; {
		case strings.HasPrefix(kind, anthropicSearch):
			if offered[i], err = anthropicSearchTool(offer, raw, offers(anthropicFetch)); err != nil {
				return nil, nil, err
			}
		case strings.HasPrefix(kind, anthropicFetch) && !offers(anthropicSearch): // Otherwise it comes with the search.
			offered[i] = fetcher(offer)
		case strings.HasPrefix(kind, anthropicCode):
			offered[i] = interpreter(offer, "", nil)
		case kind == anthropicToolset:
			set := toolset{member: offer.Member}
			if err := read(raw, offer.Member, &set); err != nil {
				return nil, nil, err
			}
			sets = append(sets, set)
		}
	}
	called, err = anthropicServers(servers, sets)
	return offered, called, err
}

// read reads a tool at a place, which is empty where the caller names it.
func read(raw []byte, place string, into any) error {
	err := jsonread.Unmarshal(raw, into)
	switch {
	case err == nil:
		return nil
	case place == "":
		return dialect.Unreadable(err)
	default:
		return dialect.At(place+".", dialect.Unreadable(err))
	}
}

func anthropicSearchTool(offer Offer, raw json.RawMessage, fetches bool) (*toolv1.ToolInfo, error) {
	var w struct {
		Allowed []string `json:"allowed_domains"`
		Blocked []string `json:"blocked_domains"`
		Place   *place   `json:"user_location"`
		Uses    *int64   `json:"max_uses"`
	}
	if err := read(raw, offer.Member, &w); err != nil {
		return nil, err
	}
	offer.restrict(AllowedDomains, AllowedDomains, w.Allowed != nil)
	offer.restrict(BlockedDomains, BlockedDomains, w.Blocked != nil)
	own, _ := orderedjson.DecodeObject(raw)
	if own = without(own, "name"); !fetches {
		own.Set(NoFetch, true)
	}
	s := &search{allowed: w.Allowed, blocked: w.Blocked, place: w.Place, uses: w.Uses}
	return s.tool(offer, vendorAnthropic, own), nil
}

// toolset is which tools of a server may be called: all but those that are disabled, or the enabled ones.
type toolset struct {
	Server  string              `json:"mcp_server_name"`
	Default enabled             `json:"default_config"`
	Configs map[string]*enabled `json:"configs"`

	member string
}

type enabled struct {
	Enabled *bool `json:"enabled"`
}

func (e *enabled) or(usual bool) bool {
	if e == nil || e.Enabled == nil {
		return usual
	}
	return *e.Enabled
}

// allowed are the sorted names of the tools that may be called; nil is all. It fails if some are disabled while others
// are not listed: no other vendor can express that.
func (s *toolset) allowed() ([]string, error) {
	usual := s.Default.or(true)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.Configs)) {
		switch on := s.Configs[name].or(usual); {
		case usual && !on:
			return nil, dialect.NotSupported(s.member+".configs", "disables %s: here a set of tools can only say which ones are enabled", name)
		case on:
			names = append(names, name)
		}
	}
	if usual {
		return nil, nil
	}
	return append([]string{}, names...), nil
}

func anthropicServers(raw json.RawMessage, sets []toolset) ([]*toolv1.ToolInfo, error) {
	var servers []struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		URL   string `json:"url"`
		Token string `json:"authorization_token"`
		Tools *struct {
			Enabled *bool    `json:"enabled"`
			Allowed []string `json:"allowed_tools"`
		} `json:"tool_configuration"`
	}
	if !jsonread.IsSet(raw) {
		return nil, nil
	}
	if err := jsonread.Unmarshal(raw, &servers); err != nil {
		return nil, dialect.Invalid("mcp_servers", "is no list of servers")
	}
	var tools []*toolv1.ToolInfo
	for i, w := range servers {
		member := fmt.Sprintf("mcp_servers.%d", i)
		switch {
		case w.Name == "":
			return nil, dialect.Required(member + ".name")
		case w.URL == "":
			return nil, dialect.Required(member + ".url")
		}
		s := &server{name: w.Name, url: w.URL}
		if w.Token != "" {
			s.headers = map[string]string{"Authorization": "Bearer " + w.Token}
		}
		if w.Tools != nil {
			s.allowed = w.Tools.Allowed
			if w.Tools.Enabled != nil && !*w.Tools.Enabled {
				continue
			}
		}
		if at := slices.IndexFunc(sets, func(set toolset) bool { return set.Server == w.Name }); at >= 0 {
			allowed, err := sets[at].allowed()
			if err != nil {
				return nil, err
			}
			s.allowed = allowed
		}
		tools = append(tools, s.tool(Offer{Member: member, Type: MCPServer}))
	}
	return tools, nil
}

// given is a tool as an answer repeats it.
func given(object *orderedjson.Object, secrets ...string) json.RawMessage {
	return jsonwrite.Marshal(without(object, secrets...))
}
