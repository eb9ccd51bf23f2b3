package openaicompat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

// perplexity searches the web, with its own models and those of others, by its Agent API, which is a Responses API.
// https://docs.perplexity.ai/docs/agent-api
var perplexity = Service{
	Name: perplexityName, Description: "Perplexity", Address: "https://api.perplexity.ai/v1",
	Responses: true, ResponsesOnly: true, WholeExtraBody: true, Sent: perplexityModel, Tools: perplexityTools, Finish: finishPerplexity,
	Full:   map[int][]string{http.StatusBadRequest: {"input length"}},
	Hosted: provider.Hosted{Kinds: []string{provider.WebSearch}, Exclusive: true},
}

const (
	perplexityName = "perplexity"
	// searchTool is the platform's tool that searches the web, and the server's.
	searchTool = "web_search"
)

// retiredModels were models of an API that Perplexity has shut down.
var retiredModels = []string{"sonar-pro", "sonar-reasoning-pro", "sonar-deep-research"}

// perplexityModel is a model's name as it is sent: with the vendor before it.
func perplexityModel(name string) (string, error) {
	switch {
	case slices.Contains(retiredModels, strings.TrimPrefix(name, perplexityName+"/")):
		return "", rpcerr.InvalidField("model", "Perplexity no longer serves %s; write perplexity/sonar, or perplexity/<vendor>/<model>", name)
	case strings.Contains(name, "/"):
		return name, nil
	default:
		return perplexityName + "/" + name, nil
	}
}

// oldOptions are options of a search that Perplexity's earlier API had; the one of today passes over them.
var oldOptions = []string{
	"disable_search", "enable_search_classifier", "image_domain_filter", "image_format_filter", "last_updated_after_filter", "last_updated_before_filter",
	"media_response", "num_images", "num_search_results", "num_videos", "reasoning_effort", "return_images", "return_related_questions", "return_videos",
	"search_after_date_filter", "search_before_date_filter", "search_context_size", "search_domain_filter", "search_language_filter", "search_mode",
	"search_recency_filter", "stream_mode", "web_search_options",
}

// perplexityTools replaces the tool that searches the web by the server's own. The server takes no other tool.
func perplexityTools(r *dialect.Request) error {
	if len(r.Tools) == 0 {
		return nil
	}
	search := &orderedjson.Object{}
	search.Set("type", searchTool)
	for _, tool := range r.Tools {
		options, err := orderedjson.DecodeObject([]byte(tool.GetOptionsJson()))
		if err != nil {
			options = &orderedjson.Object{}
		}
		given, ok := options.Get(perplexityName)
		if tool.GetName() != searchTool || !ok || given == nil || given == false {
			return rpcerr.In("tools", rpcerr.CapabilityUnsupported("tools", "perplexity takes no tool but web_search with options for perplexity; the tool %s is none", tool.GetName()))
		}
		own, isObject := given.(*orderedjson.Object)
		if !isObject && given != true {
			return rpcerr.InvalidField("tools", "the options of web_search for perplexity must be an object, or true")
		}
		if !isObject {
			continue
		}
		for name, value := range own.All() {
			if slices.Contains(oldOptions, name) {
				return rpcerr.InvalidField("tools", "perplexity's web_search has no option %s any more: https://docs.perplexity.ai/docs/agent-api", name)
			}
			search.Set(name, value)
		}
	}
	return offerSearch(r, search)
}

// offerSearch offers the server's search, beside tools of the server in extra_body.
func offerSearch(r *dialect.Request, search *orderedjson.Object) error {
	extra := responsesapi.ExtraBodyOf(r.Config)
	tools := []any{}
	if given, ok := extra.Get("tools"); ok {
		if tools, ok = given.([]any); !ok {
			return rpcerr.InvalidField("config.extra_body_json", "tools must be a list")
		}
		extra.Set("tools", append(slices.Clone(tools), search))
		r.Config.ExtraBodyJson = new(string(orderedjson.Append(nil, extra)))
	} else {
		r.Members = append(r.Members, dialect.Member{Name: "tools", JSON: string(orderedjson.Append(nil, append(tools, search)))})
	}
	if isForced(r.Choice) {
		if _, given := extra.Get("tool_choice"); given {
			return rpcerr.InvalidField("config.extra_body_json", "tool_choice is given twice: the call forces a search")
		}
		r.Members = append(r.Members, dialect.Member{Name: "tool_choice", JSON: `{"type":"web_search"}`})
	}
	r.Tools, r.Choice = nil, nil
	return nil
}

// finishPerplexity adds what the server's tools found: as citations of the last text, and unchanged in the metadata,
// beside the number of searches.
func finishPerplexity(answer dialect.Response, output *modelv1.ModelOutput, _ string) error {
	said, ok := answer.(interface {
		Found() []openairesponses.Found
		Searches() *int64
	})
	if !ok {
		return errors.New("the answer is of another format")
	}
	metadata, err := orderedjson.DecodeObject([]byte(output.GetMetadataJson()))
	if err != nil {
		metadata = &orderedjson.Object{}
	}
	for _, found := range said.Found() {
		if found.Type != "search_results" && found.Type != "fetch_url_results" {
			const what = "the answer has an item of type %q, which cannot be read; a tool in extra_body may give it"
			return fmt.Errorf(what, found.Type)
		}
		cite(output, found.Results)
		earlier, _ := metadata.Get(found.Type)
		list, _ := earlier.([]any)
		for _, result := range found.Results {
			if value, err := orderedjson.Decode(result); err == nil {
				list = append(list, value)
			}
		}
		metadata.Set(found.Type, list)
	}
	if searches := said.Searches(); searches != nil {
		metadata.Set("num_search_queries", json.Number(fmt.Sprint(*searches)))
	}
	if document := string(orderedjson.Append(nil, metadata)); document != "{}" {
		output.MetadataJson = document
	}
	return nil
}

// cite adds results to the last text of each message, except pages that the message cites already.
func cite(output *modelv1.ModelOutput, results []json.RawMessage) {
	for _, choice := range output.GetChoices() {
		var last *contentv1.Text
		cited := map[string]bool{}
		for _, part := range choice.GetMessage().GetContent().GetList().GetParts() {
			if text := part.GetText(); text != nil {
				last = text
				for _, citation := range text.GetCitations() {
					cited[citation.GetUrl()] = true
				}
			}
		}
		for _, result := range results {
			var page struct {
				URL   string  `json:"url"`
				Title *string `json:"title"`
			}
			if last == nil || json.Unmarshal(result, &page) != nil || page.URL == "" || cited[page.URL] {
				continue
			}
			cited[page.URL] = true
			last.Citations = append(last.Citations, &contentv1.Citation{Title: page.Title, Source: &contentv1.Citation_Url{Url: page.URL}})
		}
	}
}
