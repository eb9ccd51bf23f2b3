package openaicompat

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// modelInfo is the argument that switches off the question for a proxy's list.
const modelInfo = "model_info"

// liteLLM is a proxy with models under names of its operator: what it forwards to is in its list alone.
// https://docs.litellm.ai/docs/simple_proxy
var liteLLM = Service{
	Name: "litellm-proxy", Description: "a LiteLLM proxy",
	KeyEnv:     []string{"LITELLM_PROXY_API_KEY", "LITELLM_API_KEY"},
	AddressEnv: []string{"LITELLM_PROXY_BASE_URL", "LITELLM_PROXY_API_BASE", "LITELLM_BASE_URL"},
	Streamed:   true, JoinTexts: true, Full: fullInput, ListsDeployments: true, Arguments: liteLLMArguments,
}

// liteLLMArguments takes the argument model_info out of a model's.
func liteLLMArguments(all *orderedjson.Object) ([]dialect.Member, error) {
	value, given := all.Get(modelInfo)
	all.Delete(modelInfo)
	asks, isBool := value.(bool)
	switch {
	case !given || value == nil || asks:
		return nil, nil
	case !isBool:
		return nil, fmt.Errorf("%s must be true or false", modelInfo)
	default:
		return []dialect.Member{{Name: modelInfo, JSON: "false"}}, nil
	}
}

const (
	// deploymentTimeout bounds each question to a proxy. maxDeployments bounds its list, in bytes: it has some
	// kilobytes for each model.
	deploymentTimeout = 30 * time.Second
	maxDeployments    = 16 << 20
	// claudeTokens is the bound of output tokens of Claude: Anthropic requires one, and LiteLLM's own is 4096 for names
	// that it does not know.
	claudeTokens = 32_000
)

var claudeName = regexp.MustCompile(`(?i)claude`)

// deployment is a row of a proxy's list: a model behind a name. A name may have several.
type deployment struct {
	Name   string `json:"model_name"`
	Params struct {
		Model    string `json:"model"`
		Provider string `json:"custom_llm_provider"`
	} `json:"litellm_params"`
	Info struct {
		BaseModel string  `json:"base_model"`
		Input     float64 `json:"max_input_tokens"`
		Output    float64 `json:"max_output_tokens"`
	} `json:"model_info"`
}

// isClaude reports whether the model is Anthropic's: by the name that the operator states, else by the one that is
// forwarded.
func (d *deployment) isClaude() bool {
	if d.Info.BaseModel != "" {
		return claudeName.MatchString(d.Info.BaseModel)
	}
	return d.Params.Provider == "anthropic" || strings.HasPrefix(d.Params.Model, "anthropic/") || claudeName.MatchString(d.Params.Model)
}

// isGrok reports whether the model is xAI's.
func (d *deployment) isGrok() bool {
	return d.Params.Provider == "xai" || strings.HasPrefix(d.Params.Model, "xai/") || strings.HasPrefix(d.Info.BaseModel, "xai/")
}

// deployments is what a proxy's list says of one name. Safe for concurrent use.
type deployments struct {
	mu   sync.Mutex
	read bool
	// claude means that all models behind the name are Claude; output is their smallest bound of output tokens, zero if
	// it is not known.
	claude atomic.Bool
	output atomic.Int64
}

// askDeployments reads the list before the first request. Concurrent calls wait for the same answer, since their
// requests depend on it. A list that cannot be read fails the call, and the next call asks again.
func (m *model) askDeployments(ctx context.Context) error {
	d := &m.deployments
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read {
		return nil
	}
	base := strings.TrimSuffix(m.client.BaseURL, "/")
	var list struct {
		Data *[]deployment `json:"data"`
	}
	if err := m.get(ctx, base+"/model/info", &list); err != nil {
		return err
	}
	if list.Data == nil {
		return unreadableList(&provider.Error{Provider: m.service.Name, Invalid: true, Message: "the answer has no list `data`"})
	}
	name := m.routed(ctx, strings.TrimSuffix(base, "/v1"))
	d.take(*list.Data, name, &m.window)
	if slices.ContainsFunc(*list.Data, func(row deployment) bool { return row.Name == name && row.isGrok() }) {
		// Every call asks here first. A proxy that does not forward headers drops it:
		// https://docs.litellm.ai/docs/proxy/forward_client_headers.
		m.client.Conversation = xai.ConversationHeader
	}
	d.read = true
	return nil
}

// take keeps what the rows of a name say. The proxy may send a request to any of them, so that the smallest bounds
// count.
func (d *deployments) take(list []deployment, name string, window *window) {
	rows, claudes := 0, 0
	smallest := func(kept *atomic.Int64, said float64) {
		if tokens := int64(said); tokens > 0 && (kept.Load() == 0 || tokens < kept.Load()) {
			kept.Store(tokens)
		}
	}
	for i := range list {
		if list[i].Name != name {
			continue
		}
		rows++
		if list[i].isClaude() {
			claudes++
		}
		smallest(&window.tokens, list[i].Info.Input)
		smallest(&d.output, list[i].Info.Output)
	}
	d.claude.Store(rows > 0 && claudes == rows || rows == 0 && claudeName.MatchString(name))
}

// routed returns the name in the list for the model's name: the proxy replaces an alias of the key's team first, and
// then those of the key, one after the other. A proxy without keys has none, and one that does not say has none here.
func (m *model) routed(ctx context.Context, root string) string {
	var key struct {
		Info struct {
			Aliases map[string]string `json:"aliases"`
			Team    string            `json:"team_id"`
		} `json:"info"`
	}
	if m.get(ctx, root+"/key/info", &key) != nil {
		return m.name
	}
	name := m.name
	if key.Info.Team != "" {
		var team struct {
			Info struct {
				Table struct {
					Aliases map[string]string `json:"model_aliases"`
				} `json:"litellm_model_table"`
			} `json:"team_info"`
		}
		if m.get(ctx, root+"/team/info?team_id="+url.QueryEscape(key.Info.Team), &team) == nil && team.Info.Table.Aliases[name] != "" {
			name = team.Info.Table.Aliases[name]
		}
	}
	for seen := map[string]bool{name: true}; key.Info.Aliases[name] != "" && !seen[key.Info.Aliases[name]]; seen[name] = true {
		name = key.Info.Aliases[name]
	}
	return name
}

// get reads a JSON object of the proxy.
func (m *model) get(ctx context.Context, address string, into any) error {
	within, cancel := context.WithTimeout(ctx, deploymentTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(within, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("%s: %w", m.service.Name, err)
	}
	m.client.Authorize(request.Header)
	answer, err := m.client.HTTP.Do(request)
	if err != nil {
		return unreadableList(transport.Broken(ctx, m.service.Name, err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, transport.MaxErrorBytes))
		return unreadableList(m.client.Refused(answer.StatusCode, answer.Header, body))
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxDeployments)).Decode(into); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return unreadableList(&provider.Error{Provider: m.service.Name, Invalid: true, Cause: err})
	}
	return nil
}

// unreadableList is the failure of a call whose proxy does not say what is behind its names.
func unreadableList(err error) error {
	return fmt.Errorf("the proxy's list of models (/model/info) cannot be read; set the model argument model_info to false to call without it: %w", err)
}

// forClaude shapes a request for Claude behind a proxy: the bound of output tokens, which Anthropic requires.
func (m *model) forClaude(base *dialect.Request) {
	if base.Config.MaxTokens != nil {
		return
	}
	tokens := int64(claudeTokens)
	if bound := m.deployments.output.Load(); bound > 0 {
		tokens = min(tokens, bound)
	}
	base.Config.MaxTokens = &tokens
}

// isClaude reports whether a proxy said that Claude is behind the model's name.
func (m *model) isClaude() bool { return m.deployments.claude.Load() }
