// Package openaicompat provides third-party servers that speak OpenAI's chat completions. A model is named
// `openai-api/<service>/<model>`; a service is an address and a key in the configuration.
package openaicompat

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/toolschema"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Name is the provider's name.
const Name = "openai-api"

// Config sets the services up.
type Config struct {
	// Services are the servers by the name that follows `openai-api/`.
	Services map[string]provider.Account `yaml:"services"`
}

// host is shared by instances.
type host struct {
	services provider.Accounts
	http     *http.Client
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) {
	h := &host{services: provider.Accounts{Provider: Name, Named: c.Services, KeyHint: keyHint}, http: transport.NewClient()}
	kind := provider.Kind{
		Name:        Name,
		Description: "servers that speak OpenAI's chat completions, by configured service",
		Dialect:     openaichat.Name,
		Open:        h.open,
		Accounts:    h.services.Usable(),

		AccountInModel: true,
	}
	return kind, func() error {
		h.http.CloseIdleConnections()
		return nil
	}
}

func keyHint(service string) string {
	return fmt.Sprintf("set api_key of the service %q in the configuration of modelgw, or key_optional", service)
}

// arguments are the model arguments.
type arguments struct {
	// ResponsesAPI and EmulateTools are not built yet.
	ResponsesAPI bool `json:"responses_api"`
	EmulateTools bool `json:"emulate_tools"`
	// Stream reports whether requests are streamed; the default is when the answer is watched.
	Stream *bool `json:"stream"`
	// StrictTools is sent with each tool; default true.
	StrictTools *bool `json:"strict_tools"`
}

// model is one opened model.
type model struct {
	name   string
	args   arguments
	client *chatapi.Client
	// upstreams are made once.
	upstreams []*provider.Upstream
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	service, name, ok := strings.Cut(spec.Model, "/")
	if !ok || name == "" {
		return nil, rpcerr.InvalidField("model", "%s/%s names no service: write %s/<service>/<model>", Name, spec.Model, Name)
	}
	if _, known := h.services.Named[service]; !known {
		names := slices.Sorted(maps.Keys(h.services.Named))
		return nil, rpcerr.ModelNotFound(Name+"/"+spec.Model, names, "unknown service %q of %s; configured: %s; set base_url and api_key in modelgw.openai_api.services.%s of the configuration",
			service, Name, cmp.Or(strings.Join(names, ", "), "none"), service)
	}
	if spec.Account != provider.DefaultAccount {
		return nil, rpcerr.InvalidField("account", "the model %s/%s names its service, %s; leave the account %q out", Name, spec.Model, service, spec.Account)
	}
	m := &model{name: name}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	switch {
	case m.args.ResponsesAPI:
		return nil, rpcerr.NotBuiltField("model_args_json/responses_api", "the Responses API")
	case m.args.EmulateTools:
		return nil, rpcerr.NotBuiltField("model_args_json/emulate_tools", "emulating tools in prompts")
	}
	access, err := h.services.Open(service, spec.BaseURL)
	if err != nil {
		return nil, err
	}
	m.client = chatapi.New(Name+"/"+service, access, transport.RedactSecrets(h.http, access.APIKey), quirks(service))
	m.upstreams = []*provider.Upstream{m.client.Upstream(name)}
	return m, nil
}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	return provider.Capabilities{
		ConnectionKey:    provider.ShownURL(m.client.BaseURL) + "/" + m.name, // which lists of pools show
		Ignored:          chatapi.Ignored,
		Dropped:          append(slices.Clone(chatapi.Dropped), "modalities"),
		ExtraBodyDropped: chatapi.ExtraBodyDropped,
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: true, Streaming: m.args.Stream == nil || *m.args.Stream, ResponseSchema: true, Reasoning: true,
		},
		Upstreams: m.upstreams,
	}
}

// Check implements provider.Provider: any call may succeed.
func (*model) Check(*modelv1.GenerateConfig) error { return nil }

// Close implements provider.Provider.
func (m *model) Close() error { return nil }

// quirks interpret the errors of such servers. For a server with its own words for a full context, the answer names
// service and model.
func quirks(service string) exchange.Quirks {
	return exchange.Quirks{
		RetryUnreadable: true,
		StopStatuses:    []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusForbidden, http.StatusRequestEntityTooLarge},
		Stop: func(_ int, e *dialect.Error, name string) (*modelv1.ModelOutput, bool) {
			if !strings.Contains(e.Message, "input length") {
				return nil, false
			}
			return chat.MessageOutput(service+"/"+name, chat.Assistant(e.Message), modelv1.StopReason_STOP_REASON_MODEL_LENGTH), true
		},
	}
}

// extended are keywords of JSON Schema that many servers refuse in a tool's parameters.
var extended = []string{"pattern", "minLength", "maxLength", "minimum", "maximum", "examples"}

// newer are names whose bound of output tokens has another member.
var newer = regexp.MustCompile(`^(?:o\d|gpt-(?:[5-9]|\d\d))`)

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	request := &openaichat.Request{StrictTools: m.args.StrictTools, Request: dialect.Request{
		Model: m.name, Messages: r.Messages, Tools: toolschema.Without(r.Tools, extended...), Choice: r.ToolChoice, Config: r.Config, Stream: r.Streams(m.args.Stream),
	}}
	if request.StrictTools == nil {
		request.StrictTools = new(true)
	}
	if newer.MatchString(m.name) {
		request.MaxTokensMember = "max_completion_tokens"
	}
	return m.client.Do(ctx, r, request)
}
