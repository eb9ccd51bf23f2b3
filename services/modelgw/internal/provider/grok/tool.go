package grok

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// Names of tools that the server can run itself, as far as their options allow it.
const (
	webSearch     = "web_search"
	codeExecution = "code_execution"
)

// hosted are the tools that the server runs with the model.
func (m *model) hosted() provider.Hosted {
	h := provider.Hosted{Kinds: []string{provider.CodeExecution}, Restrictions: []string{hosted.AllowedDomains, hosted.BlockedDomains}}
	if m.name.searches() {
		h.Kinds = append(h.Kinds, provider.WebSearch)
	}
	return h
}

// tools are the offered tools: functions of the client, and tools of the server in the place of those that it has.
func (m *model) tools(offered []*toolv1.ToolInfo) ([]*xai.Tool, error) {
	var all []*xai.Tool
	for _, tool := range offered {
		sent, err := m.tool(tool)
		if err != nil {
			return nil, err
		}
		all = append(all, sent)
	}
	return all, nil
}

func (m *model) tool(tool *toolv1.ToolInfo) (*xai.Tool, error) {
	var options struct {
		Grok      json.RawMessage `json:"grok"`
		Providers struct {
			Grok json.RawMessage `json:"grok"`
		} `json:"providers"`
	}
	_ = json.Unmarshal([]byte(cmp.Or(tool.GetOptionsJson(), "{}")), &options) // Options of another form are another tool's.
	switch name := tool.GetName(); {
	case name == webSearch && m.name.searches() && allows(options.Grok):
		return search(options.Grok)
	case name == codeExecution && allows(options.Providers.Grok):
		return &xai.Tool{Tool: &xai.Tool_CodeExecution{CodeExecution: &xai.CodeExecution{}}}, nil
	}
	return &xai.Tool{Tool: &xai.Tool_Function{Function: &xai.Function{
		Name: tool.GetName(), Description: tool.GetDescription(), Parameters: cmp.Or(tool.GetParametersJson(), dialect.NoParameters),
	}}}, nil
}

// allows reports whether a provider's options of a tool let the server run it.
func allows(options json.RawMessage) bool {
	return len(options) > 0 && string(options) != "null" && string(options) != "false"
}

// search is the server's search of the web. Its options are those of xAI's own client.
func search(given json.RawMessage) (*xai.Tool, error) {
	var options struct {
		ExcludedDomains          []string `json:"excluded_domains"`
		AllowedDomains           []string `json:"allowed_domains"`
		EnableImageUnderstanding bool     `json:"enable_image_understanding"`
		EnableImageSearch        bool     `json:"enable_image_search"`
		UserLocationCountry      *string  `json:"user_location_country"`
		UserLocationCity         *string  `json:"user_location_city"`
		UserLocationRegion       *string  `json:"user_location_region"`
		UserLocationTimezone     *string  `json:"user_location_timezone"`
	}
	if string(given) != "true" {
		decoder := json.NewDecoder(bytes.NewReader(given))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&options); err != nil {
			return nil, rpcerr.InvalidField("tools", "the options of %s for %s: %s", webSearch, Name, strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	s := &xai.WebSearch{
		ExcludedDomains: options.ExcludedDomains, AllowedDomains: options.AllowedDomains,
		EnableImageUnderstanding: &options.EnableImageUnderstanding, EnableImageSearch: &options.EnableImageSearch,
	}
	place := &xai.WebSearchUserLocation{
		Country: options.UserLocationCountry, City: options.UserLocationCity, Region: options.UserLocationRegion, Timezone: options.UserLocationTimezone,
	}
	if cmp.Or(place.Country, place.City, place.Region, place.Timezone) != nil {
		s.UserLocation = place
	}
	return &xai.Tool{Tool: &xai.Tool_WebSearch{WebSearch: s}}, nil
}
