// Package chatapi is shared by providers whose APIs speak OpenAI's chat completions: their addresses, the authorization
// header, and the options that they lack. Providers express their differences in the request and in the quirks of the
// exchange.
package chatapi

import (
	"context"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// Client calls one endpoint. It is safe for concurrent use.
type Client struct {
	exchange.Exchange
	// BaseURL is where Path is.
	BaseURL string
	// Path is where chat completions are, below the base URL; New sets the usual one.
	Path string
	// KeyHeader has the key too, beside the bearer token; empty is no such header.
	KeyHeader string
	// Key is the credential; zero sends none.
	Key config.Secret
	// Headers are sent with each request.
	Headers map[string]string
	// Conversation is the name of the header that says to which conversation a request belongs; empty is no such
	// header.
	Conversation string
}

// path is where chat completions usually are.
const path = "/chat/completions"

// New returns a client for an account. name is the provider's, for errors.
func New(name string, access provider.Access, http *http.Client, quirks exchange.Quirks) *Client {
	return &Client{
		Exchange: exchange.Exchange{Codec: openaichat.Codec{}, HTTP: http, Provider: name, Quirks: quirks},
		BaseURL:  access.Endpoint, Path: path, Key: access.APIKey,
	}
}

// Upstream returns the endpoint as a target for requests that are already in the format. model is the server's name of
// the model.
func (c *Client) Upstream(model string) *provider.Upstream {
	return c.Exchange.Upstream(c.BaseURL+c.Path, model, c.Authorize)
}

// Listing is where servers list their models beside chat completions.
func (c *Client) Listing(model string) provider.Listing {
	return provider.Listing{URL: c.BaseURL + "/models", Model: model, HTTP: c.HTTP, Authorize: c.Authorize}
}

// Authorize sets the account's credential and headers on a request, replacing present ones.
func (c *Client) Authorize(h http.Header) {
	h.Del("Authorization")
	if c.KeyHeader != "" {
		h.Del(c.KeyHeader)
	}
	if !c.Key.IsZero() {
		h.Set("Authorization", "Bearer "+c.Key.Reveal())
		if c.KeyHeader != "" {
			h.Set(c.KeyHeader, c.Key.Reveal())
		}
	}
	for name, value := range c.Headers {
		h.Set(name, value)
	}
}

// Do makes an attempt of one request.
func (c *Client) Do(ctx context.Context, r *provider.Request, request *openaichat.Request) (*provider.Response, error) {
	call := &exchange.Call{URL: c.BaseURL + c.Path, Header: c.Header(r), Model: request.Model, Stream: request.Stream}
	return c.Exchange.Do(ctx, r, call, request.Append)
}

// Header returns the headers of a request: the account's, its conversation's, and those of the configuration.
func (c *Client) Header(r *provider.Request) http.Header {
	header := http.Header{}
	c.Authorize(header)
	if id := r.Conversation(); id != "" && c.Conversation != "" {
		header.Set(c.Conversation, id)
	}
	for name, value := range r.Config.GetExtraHeaders().GetValues() {
		header.Set(name, value)
	}
	return header
}

// Mode is the mode that a configuration's service tier asks for, as in [provider.Moded]; byDefault is the tier of a
// configuration without one.
func Mode(c *modelv1.GenerateConfig, byDefault string) string {
	if all, err := orderedjson.DecodeObject([]byte(c.GetExtraBodyJson())); err == nil {
		if given, ok := all.Get(ServiceTier); ok {
			byDefault, _ = given.(string)
		}
	}
	return openai.Mode(byDefault)
}

// ContinueFinal are the members by which vLLM, and servers like it, continue the last message; none unless that is the
// assistant's.
func ContinueFinal(messages []*modelv1.ChatMessage) []dialect.Member {
	if last := len(messages) - 1; last < 0 || messages[last].GetRole() != modelv1.Role_ROLE_ASSISTANT {
		return nil
	}
	return []dialect.Member{{Name: "add_generation_prompt", JSON: "false"}, {Name: "continue_final_message", JSON: "true"}}
}

// ServiceTier is the member of a request that asks for a mode of the server.
const ServiceTier = "service_tier"

// Ignored and Dropped are options that chat completions do not have, as in [provider.Capabilities]; some models have
// cache_prompt.
var (
	Ignored = []string{"top_k", "verbosity"}
	Dropped = []string{
		"best_of", "internal_tools", "fallback_models", "effort", "reasoning_mode", "reasoning_tokens", "reasoning_summary", "cache_prompt",
	}
	// ExtraBodyDropped are members of extra_body that are not sent: metadata is about the call, and not for the server.
	ExtraBodyDropped = []string{"metadata"}
)
