// Package sagemaker is Amazon SageMaker's endpoints with models that speak chat completions, as vLLM and the containers
// of its catalogue do. The format is pkg/dialect/openaichat, in frames of Amazon's if it is streamed; credentials and
// signatures are provider/awsauth. Models that complete a text are not supported.
package sagemaker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Name is the provider's name.
const Name = "sagemaker"

// service is the name of SageMaker in signatures.
const service = "sagemaker"

// vendor is the address of SageMaker in a region.
func vendor(region string) string { return "https://runtime.sagemaker." + awsauth.Domain(region) }

const keyHint = "set AWS_REGION and credentials of AWS (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role), or the same in the configuration of modelgw"

// Config sets the provider up.
type Config struct {
	// BaseURL is the address of the account `default`; default is SageMaker's own in the region.
	BaseURL string `yaml:"base_url"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_SAGEMAKER_ALLOWED_BASE_URLS"`
	awsauth.Default `yaml:",inline"`
	// Accounts are further accounts by name.
	Accounts map[string]Account `yaml:"accounts"`
}

// Account is access to SageMaker as it is configured.
type Account struct {
	// BaseURL is where the API is; empty is SageMaker's own address in the region.
	BaseURL string `yaml:"base_url"`
	// AllowedBaseURLs are further addresses that a request may use: exactly these, or a plain path below them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls"`
	awsauth.Account `yaml:",inline"`
}

// Validate implements config.Validator. The account `default`, whose variables may be meant for other programs, is
// checked when it is used.
func (c *Config) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(c.Accounts)) {
		account := c.Accounts[name]
		if err := account.Check(); err != nil {
			return fmt.Errorf("accounts.%s: %w", name, err)
		}
	}
	return nil
}

// host is shared by instances.
type host struct {
	accounts map[string]*access
	http     *http.Client
}

// access is an account, with the source of its credentials.
type access struct {
	Account
	source *awsauth.Source
	signer *awsauth.Signer
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) {
	h := &host{accounts: map[string]*access{}, http: transport.NewClient()}
	named := provider.ByName(c.Accounts, Account{BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, Account: c.Account()})
	var listed []*modelv1.Account
	for _, name := range slices.Sorted(maps.Keys(named)) {
		account := named[name]
		owner := awsauth.Owner{Provider: Name, Account: name, Hint: keyHint}
		source := awsauth.NewSource(owner, account.Account, h.http)
		h.accounts[name] = &access{Account: account, source: source, signer: awsauth.NewSigner(source, service)}
		listed = append(listed, owner.Listed(&account.Account, account.BaseURL, vendor, account.isReachable(account.Region)))
	}
	kind := provider.Kind{
		Name:        Name,
		Description: "endpoints of Amazon SageMaker with models that speak chat completions",
		Dialect:     openaichat.Name,
		Open:        h.open,
		Accounts:    listed,
	}
	return kind, func() error {
		h.http.CloseIdleConnections()
		return nil
	}
}

// isReachable reports whether it is known where requests go: in a region, which a profile may have.
func (a *Account) isReachable(region string) bool { return region != "" || a.Profile != "" }

// arguments are the model arguments.
type arguments struct {
	// RegionName is the region of AWS; default is the account's.
	RegionName string `json:"region_name"`
	// EndpointURL is the address of the API, which the account must allow; default is the account's.
	EndpointURL string `json:"endpoint_url"`
	// InferenceComponentName is the part of an endpoint with several models.
	InferenceComponentName string `json:"inference_component_name"`
	// PromptLogprobs is used where the configuration has none.
	PromptLogprobs *int32 `json:"prompt_logprobs"`
	// Stream streams every answer; by default one that is watched.
	Stream *bool `json:"stream"`
	// CompletionMode is not built yet, but as false.
	CompletionMode bool `json:"completion_mode"`
	// ReadTimeout and ConnectTimeout are known from inspect_ai, and not used: the gateway bounds attempts.
	ReadTimeout    json.RawMessage `json:"read_timeout"`
	ConnectTimeout json.RawMessage `json:"connect_timeout"`
}

// model is one opened model.
type model struct {
	// name is that of the endpoint.
	name    string
	args    arguments
	account *access
	// region is that of requests.
	region string
	// asked is the address that the reference of the model asks for; empty is the account's.
	asked string
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	m := &model{name: spec.Model}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	if m.args.CompletionMode {
		return nil, rpcerr.NotBuiltField("model_args_json/completion_mode", "completing a text on SageMaker")
	}
	if err := awsauth.CheckRegion(m.args.RegionName); err != nil {
		return nil, provider.InvalidArguments(fmt.Errorf("region_name: %w", err))
	}
	account, known := h.accounts[spec.Account]
	if !known {
		return nil, provider.NoSuchAccount(Name, spec.Account, slices.Sorted(maps.Keys(h.accounts)))
	}
	m.account, m.asked = account, cmp.Or(m.args.EndpointURL, spec.BaseURL)
	m.region = cmp.Or(m.args.RegionName, account.Region)
	if _, err := m.endpoint(); err != nil {
		return nil, err
	}
	if err := account.Check(); err != nil {
		return nil, rpcerr.ProviderNotConfigured(Name, spec.Account, "%s's account %q cannot be used: %w", Name, spec.Account, err)
	}
	if !account.isReachable(m.region) {
		return nil, rpcerr.ProviderNotConfigured(Name, spec.Account, "%s's account %q has no region: %s", Name, spec.Account, keyHint)
	}
	if m.region == "" {
		var err error
		if m.region, err = account.source.Region(context.Background()); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// endpoint is the address of the API.
func (m *model) endpoint() (string, error) {
	account := provider.Account{BaseURL: m.account.BaseURL, AllowedBaseURLs: m.account.AllowedBaseURLs}
	return account.Endpoint(m.asked, vendor(m.region))
}

// path is where requests to the endpoint are posted.
func (m *model) path(stream bool) string {
	path := "/endpoints/" + awsauth.Segment(m.name) + "/invocations"
	if stream {
		path += "-response-stream"
	}
	return path
}

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	all := provider.UnsentArguments(provider.BoundedAttempts, map[string]bool{
		"read_timeout": jsonread.IsSet(m.args.ReadTimeout), "connect_timeout": jsonread.IsSet(m.args.ConnectTimeout),
	})
	if c.GetReasoningEffort() == noEffort {
		all = append(all, provider.Unsent{Option: "reasoning_effort", Why: "which takes low, medium and high"})
	}
	return all
}

// Changed implements provider.OptionChanger.
func (m *model) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	return provider.ChangeEffort(c, cmp.Or(efforts[c.GetReasoningEffort()], c.GetReasoningEffort()))
}

// dropped are options that the API does not have, and that shape no more than how an answer is made.
var dropped = slices.DeleteFunc(
	append(slices.Clone(chatapi.Dropped), "extra_headers", "reasoning_history"),
	func(option string) bool { return option == "best_of" },
)

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	server, _ := m.endpoint() // Fails only for a requested address, which was allowed.
	return provider.Capabilities{
		Server:        server,
		ConnectionKey: m.name,
		MaxTokens:     defaultBound,
		MergeUser:     true, MergeAssistant: true,
		Ignored: []string{"verbosity", "modalities"},
		Dropped: dropped,
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: true, ResponseSchema: true, Reasoning: true, Streaming: m.args.Stream == nil || *m.args.Stream,
		},
	}
}

// defaultBound is the default bound of output tokens.
const defaultBound = 2048

// Check implements provider.Provider: any call may succeed.
func (*model) Check(*modelv1.GenerateConfig) error { return nil }

// Close implements provider.Provider.
func (*model) Close() error { return nil }
