package anthropic

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// site is where models are served: at Anthropic, or in a cloud, which lacks features:
// https://platform.claude.com/docs/en/build-with-claude/overview. The zero value lacks none.
type site struct {
	// prefix begins the names of its models; empty at Anthropic.
	prefix string
	// open gives a model access through its account.
	open func(h *host, m *model, spec provider.Spec) error

	// noFallback lacks fallbacks to other models, noAutomaticCache marks of the prompt cache that the server sets,
	// noSystemTurns system messages within the conversation, noFilters searches that filter what they find by code,
	// noServers servers of tools that Anthropic calls, noToolset the set of tools for a computer, and noCount the
	// counting of tokens.
	noFallback, noAutomaticCache, noSystemTurns, noFilters, noServers, noToolset, noCount bool
	// noTools are the kinds of tools without a form of the model's own, which are offered as functions.
	noTools []string
	// binds reports whether thinking can be bound to its place in the conversation; nil is always.
	binds func(generation) bool

	// modelInAddress and streamInAddress are as in the format's Request.
	modelInAddress, streamInAddress bool
	// version is the member of a body that names the version of the API; empty if it is in a header.
	version string
	// betasInBody has preview features in the body too.
	betasInBody bool
}

func never(generation) bool { return false }

// sites are the places by the names of models. The first whose prefix fits counts; the last is Anthropic's own.
var sites = []*site{
	{prefix: azurePrefix, open: (*host).openAzure, noFallback: true, noToolset: true, binds: never},
	{
		prefix: bedrockPrefix, open: (*host).openBedrock, version: "bedrock-2023-05-31",
		modelInAddress: true, streamInAddress: true, betasInBody: true,
		noFallback: true, noAutomaticCache: true, noSystemTurns: true, noFilters: true, noServers: true, noToolset: true, noCount: true,
		noTools: []string{provider.WebSearch, provider.CodeExecution, provider.Memory},
		binds:   func(g generation) bool { return g.Is(claude.Sonnet, 55, 60) },
	},
	{
		prefix: vertexPrefix, open: (*host).openVertex, version: "vertex-2023-10-16", modelInAddress: true,
		noFallback: true, noAutomaticCache: true, noSystemTurns: true, noFilters: true, noServers: true, binds: never,
		noTools: []string{provider.CodeExecution},
	},
	{open: (*host).openVendor},
}

// siteOf returns where a model is served, and its name there.
func siteOf(model string) (at *site, served string) {
	for _, s := range sites {
		if name, ok := strings.CutPrefix(model, s.prefix); ok {
			return s, name
		}
	}
	return nil, model // Never: the last prefix is empty.
}

// members are the members of a body that only the site has.
func (s *site) members(betas []string) (all []dialect.Member) {
	betas = inOrder(betas)
	if s.version != "" {
		all = append(all, dialect.TextMember("anthropic_version", s.version))
	}
	if s.betasInBody && len(betas) > 0 {
		all = append(all, dialect.Member{Name: "anthropic_beta", JSON: string(jsonwrite.Marshal(betas))})
	}
	return all
}

// bodyOrder is the order of preview features in a body, as recorded; those that a request brings itself precede them.
var bodyOrder = []string{
	betaEffort, betaLongOutput, betaSchema, betaFallback, betaMCP, betaInterleaved, betaBinding, betaComputer, betaComputerOld, betaEditorOld, betaMemory,
	betaCode, betaFetch, betaCompaction,
}

// inOrder are preview features in that order, each once.
func inOrder(betas []string) []string {
	all := slices.Clone(betas)
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(slices.Index(bodyOrder, a), slices.Index(bodyOrder, b)) })
	seen := map[string]bool{"": true}
	return slices.DeleteFunc(all, func(beta string) bool {
		before := seen[beta]
		seen[beta] = true
		return before
	})
}

// fullName is the model's name with its site, which has quotas of its own.
func (m *model) fullName() string { return m.site.prefix + string(m.name) }

// door is the way to the API of a site.
type door interface {
	// enter returns the exchange with the account's credentials of now. Its errors are those of an attempt.
	enter(ctx context.Context) (*entry, error)
}

// entry is an exchange, and the addresses of its API.
type entry struct {
	*exchange.Exchange
	// messages is where messages are posted, for an answer that is streamed or whole.
	messages func(stream bool) string
	// count is where tokens are counted; empty if they are not.
	count string
	// header has the account's credential, if that is not one of the model's headers; nil is none.
	header http.Header
	// refused is called for a failure of the account's credentials; nil is nothing.
	refused func()
}

// plainDoor is an API whose address and credentials stay.
type plainDoor struct {
	exchange *exchange.Exchange
	endpoint string
}

func (d *plainDoor) enter(context.Context) (*entry, error) {
	return &entry{Exchange: d.exchange, messages: func(bool) string { return d.endpoint + path }, count: d.endpoint + countPath}, nil
}
