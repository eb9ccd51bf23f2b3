package modelgw_test

import (
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/evalfleet/evalfleet/pkg/config"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
)

type (
	modelConfig = modelgw.Config
	modelDeps   = modelgw.Deps
)

// waitLimit and tick are for conditions that another goroutine of the gateway brings about.
const (
	waitLimit = time.Minute
	tick      = 2 * time.Millisecond
)

func durationOf(text string) *durationpb.Duration {
	d, _ := time.ParseDuration(text)
	return durationpb.New(d)
}

func TestPoolsAreShownAndRetuned(t *testing.T) {
	t.Parallel()
	g := start(t)
	_, err := g.models.Generate(t.Context(), ask("", "q"))
	require.NoError(t, err)
	pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/-/-"})
	require.NoError(t, err)
	require.Len(t, pools.GetConnectionPools(), 1)
	p := pools.GetConnectionPools()[0]
	assert.Equal(t, "accounts/mockllm/default/connectionPools/default", p.GetName())
	pools, err = g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/openai/default"})
	require.NoError(t, err)
	assert.Empty(t, pools.GetConnectionPools(), "an account's pools are its own")
	for _, parent := range []string{"accounts/mockllm", "accounts/mockllm/other", "accounts/-/default", project} {
		_, err = g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: parent})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", parent, err)
	}
	assert.True(t, p.GetAdaptive())
	assert.Equal(t, []int32{20, 100, 0}, []int32{p.GetLimit(), p.GetMax(), p.GetInFlight()})

	old := p.GetEtag()
	p, err = g.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: p.GetName(), Max: 5, Etag: old}})
	require.NoError(t, err)
	assert.Equal(t, int32(5), p.GetLimit())
	_, err = g.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: p.GetName(), Max: 6, Etag: old}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH), err)
	_, err = g.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: p.GetName(), Limit: 6}})
	require.ErrorContains(t, err, "only max can be set")
	_, err = g.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: p.GetName()}})
	require.ErrorContains(t, err, "nothing is to be changed")
	require.Len(t, p.GetHistory(), 1)
	assert.Equal(t, modelv1.ConnectionPoolChangeReason_CONNECTION_POOL_CHANGE_REASON_MANUAL, p.GetHistory()[0].GetReason())

	_, err = g.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: p.GetName() + "/nobody", Max: 5}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), err)
	_, err = g.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: "accounts/mockllm/default", Max: 5}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), err)
	_, err = g.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: p.GetName(), Max: -1}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), err)
}

func TestABudgetEndsCallsAndAHigherOneLetsThemOn(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Budgets = map[string]modelgw.Budget{project: {MaxTokens: new(int64(10))}}
		c.Prices = map[string]modelgw.Price{"mockllm/model": {Rates: modelgw.Rates{Input: new(1.0), Output: new(2.0)}}}
	})
	script := `{"outputs": [{"output": {"text": "x", "usage": {"input_tokens": 4, "output_tokens": 8, "total_tokens": 12}}}]}`
	answer, err := g.models.Generate(t.Context(), ask(script, "q"))
	require.NoError(t, err)
	assert.InDelta(t, 20e-6, answer.GetOutput().GetUsage().GetTotalCost(), 1e-12)

	request := keyed("k", ask(script, "q"))
	_, err = g.models.Generate(t.Context(), request)
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED), err)
	assert.Positive(t, rpcerr.RetryAfter(err))

	budgets, err := g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
	require.NoError(t, err)
	require.Len(t, budgets.GetBudgets(), 1)
	b := budgets.GetBudgets()[0]
	assert.Equal(t, int64(12), b.GetSpentTokens())
	assert.Zero(t, b.GetReservedTokens())

	b.MaxTokens = new(int64(100))
	_, err = g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: b})
	require.NoError(t, err)
	_, err = g.models.Generate(t.Context(), request)
	require.NoError(t, err, "the same key goes on: nothing had happened under it")
}

// A budget that would bound nothing, or everything for ever, is refused where it is configured and where it is set.
func TestABudgetThatBoundsNothingIsRefused(t *testing.T) {
	t.Parallel()
	for document, fault := range map[string]string{
		`budgets: {projects/default: {max_cost: .nan}}`:              "budgets.projects/default.max_cost: must be a number that is not negative",
		`budgets: {projects/default: {max_cost: .inf}}`:              "budgets.projects/default.max_cost: must be a number",
		`budgets: {projects/default: {max_cost: -1}}`:                "budgets.projects/default.max_cost: must be a number",
		`budgets: {projects/default: {max_tokens: -5}}`:              "budgets.projects/default.max_tokens: must not be negative",
		`budgets: {foo/bar: {max_tokens: 5}}`:                        `budgets: "foo/bar" is no scope; write projects/{project},`,
		`budgets: {projects/default/evlas/e: {max_tokens: 5}}`:       `"projects/default/evlas/e" is no scope`,
		`budgets: {accounts/openai: {max_cost: 0.1}}`:                `"accounts/openai" is no scope`,
		`budgets: {accounts/openai/spare: {max_cost: 0.1}}`:          "budgets.accounts/openai/spare: no such account is configured; known are accounts/anthropic/default, ",
		`budgets: {accounts/openai-api/together: {max_tokens: 100}}`: "no such account",
	} {
		var cfg modelgw.Config
		cfg.SetDefaults()
		require.NoError(t, config.Decode(&cfg, []byte(document)), document)
		require.ErrorContains(t, cfg.Validate(), fault, document)
	}
	var cfg modelgw.Config
	cfg.SetDefaults()
	require.NoError(t, config.Decode(&cfg, []byte(`
openai: {accounts: {spare: {api_key: k}}}
budgets: {projects/p: {max_cost: 0}, projects/p/evals/e: {max_tokens: 0}, accounts/openai/spare: {max_cost: 1}, accounts/mockllm/default: {}}`)))
	require.NoError(t, cfg.Validate())

	g := start(t)
	for _, b := range []*modelv1.Budget{
		{Name: project + "/budgets/project", MaxCost: new(math.NaN())},
		{Name: project + "/budgets/project", MaxCost: new(math.Inf(1))},
		{Name: project + "/budgets/project", MaxTokens: new(int64(-1))},
		{Name: project + "/budgets/evlas/foo", MaxTokens: new(int64(1))},
		{Name: project + "/budgets/evals", MaxTokens: new(int64(1))},
		{Name: project + "/budgets/account", MaxTokens: new(int64(1))},
		{Name: "accounts/mockllm/default/budgets/project", MaxTokens: new(int64(1))},
		{Name: "accounts/mockllm/default/budgets/evals/e", MaxTokens: new(int64(1))},
		{Name: "accounts/mockllm/other/budgets/account", MaxTokens: new(int64(1))},
		{Name: "accounts/mockllm/budgets/account", MaxTokens: new(int64(1))},
		{Name: "accounts/mockllm/default", MaxTokens: new(int64(1))},
	} {
		_, err := g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: b})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v: %v", b, err)
	}
	_, err := g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: &modelv1.Budget{Name: project + "/budgets/evals/e", MaxTokens: new(int64(0))}})
	require.NoError(t, err)
}

// The scopes of a call are the server's: its project, its account and the evaluation that it is on behalf of.
func TestACallSpendsFromTheBudgetOfItsEvaluation(t *testing.T) {
	t.Parallel()
	g := start(t)
	_, err := g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: &modelv1.Budget{Name: project + "/budgets/evals/e", MaxTokens: new(int64(1))}})
	require.NoError(t, err)
	of := func(eval string) error {
		r := ask("", "q")
		r.Attribution = &effectv1.Attribution{Eval: eval}
		_, err := g.models.Generate(t.Context(), r)
		return err
	}
	require.NoError(t, of(project+"/evals/e"))
	assert.True(t, rpcerr.Is(of(project+"/evals/e"), errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED))
	require.NoError(t, of(project+"/evals/other"))
	assert.True(t, rpcerr.Is(of("projects/other/evals/e"), errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST))
}

// The budget of an account bounds what all projects spend on it.
func TestAnAccountHasABudget(t *testing.T) {
	t.Parallel()
	g := start(t)
	const account = "accounts/mockllm/default"
	_, err := g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: &modelv1.Budget{Name: account + "/budgets/account", MaxTokens: new(int64(1))}})
	require.NoError(t, err)
	_, err = g.models.Generate(t.Context(), ask("", "q"))
	require.NoError(t, err)
	elsewhere := ask("", "q")
	elsewhere.Parent = "projects/other"
	_, err = g.models.Generate(t.Context(), elsewhere)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED), err)
	budgets, err := g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: account})
	require.NoError(t, err)
	require.Len(t, budgets.GetBudgets(), 1)
	assert.Equal(t, account+"/budgets/account", budgets.GetBudgets()[0].GetName())
	assert.Positive(t, budgets.GetBudgets()[0].GetSpentTokens())
	_, err = g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: "accounts/mockllm/other"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), err)
}

// An update changes what its mask names: a bound that is not named stays, one that is named and not set is lifted.
func TestABoundOfABudgetIsLiftedByItsName(t *testing.T) {
	t.Parallel()
	g := start(t)
	update := func(b *modelv1.Budget, paths ...string) (*modelv1.Budget, error) {
		b.Name = project + "/budgets/project"
		return g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: b, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	}
	first, err := update(&modelv1.Budget{MaxTokens: new(int64(10)), MaxCost: new(2.5)})
	require.NoError(t, err)
	b, err := update(&modelv1.Budget{MaxTokens: new(int64(11))})
	require.NoError(t, err)
	assert.InDelta(t, 2.5, b.GetMaxCost(), 0, "what is not set stays")
	_, err = update(&modelv1.Budget{})
	require.ErrorContains(t, err, "nothing is to be changed")
	_, err = update(&modelv1.Budget{Etag: first.GetEtag()}, "max_cost")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH), err)
	b, err = update(&modelv1.Budget{Etag: b.GetEtag()}, "max_cost")
	require.NoError(t, err)
	assert.Nil(t, b.MaxCost)
	assert.Equal(t, int64(11), b.GetMaxTokens())
	b, err = update(&modelv1.Budget{}, "*")
	require.NoError(t, err)
	assert.Nil(t, b.MaxTokens)
	_, err = update(&modelv1.Budget{}, "max_tokns")
	require.ErrorContains(t, err, "max_tokns")
}

// An evaluation that is repeated by another process, or after an update of the server, does not pay again.
func TestTheCacheOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	answer := func() *modelv1.GenerateResponse {
		g := start(t, func(_ *modelConfig, d *modelDeps) { d.DataDir = folder })
		defer g.close()
		r := ask(`{"outputs": ["one"]}`, "q")
		r.Config = &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true}}
		answer, err := g.models.Generate(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, "one", answer.GetOutput().GetCompletion())
		return answer
	}
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, answer().GetCache())
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, answer().GetCache())
}

func TestTheCacheAnswersEqualCallsOfAnEpoch(t *testing.T) {
	t.Parallel()
	g := start(t)
	script := `{"outputs": ["one", "two", "three"]}`
	cached := func(epoch int32) *modelv1.GenerateRequest {
		r := on("s", 1, ask(script, "q"))
		r.Attribution.Epoch = epoch
		r.Config = &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true}}
		return r
	}
	var texts []string
	var uses []modelv1.CacheUse
	for _, epoch := range []int32{1, 1, 2} {
		answer, err := g.models.Generate(t.Context(), cached(epoch))
		require.NoError(t, err)
		texts, uses = append(texts, answer.GetOutput().GetCompletion()), append(uses, answer.GetCache())
		if answer.GetCache() == modelv1.CacheUse_CACHE_USE_READ {
			assert.Zero(t, answer.GetTiming().GetAttempts())
		}
	}
	assert.Equal(t, []string{"one", "one", "two"}, texts)
	assert.Equal(t, []modelv1.CacheUse{modelv1.CacheUse_CACHE_USE_WRITE, modelv1.CacheUse_CACHE_USE_READ, modelv1.CacheUse_CACHE_USE_WRITE}, uses)

	sizes, err := g.caches.GetCacheSize(t.Context(), &modelv1.GetCacheSizeRequest{Parent: project})
	require.NoError(t, err)
	assert.Positive(t, sizes.GetBytes()["mockllm/model"])
	assert.Equal(t, map[string]int64{"mockllm/model": 2}, sizes.GetEntries())
	assert.Empty(t, sizes.GetExpiredEntries())
	entries, err := g.caches.ListCacheEntries(t.Context(), &modelv1.ListCacheEntriesRequest{Parent: project, PageSize: 1})
	require.NoError(t, err)
	require.Len(t, entries.GetEntries(), 1)
	require.NotEmpty(t, entries.GetNextPageToken())
	rest, err := g.caches.ListCacheEntries(t.Context(), &modelv1.ListCacheEntriesRequest{Parent: project, PageToken: entries.GetNextPageToken()})
	require.NoError(t, err)
	require.Len(t, rest.GetEntries(), 1)
	assert.NotEqual(t, entries.GetEntries()[0].GetId(), rest.GetEntries()[0].GetId())
	other, err := g.caches.GetCacheSize(t.Context(), &modelv1.GetCacheSizeRequest{Parent: "projects/other"})
	require.NoError(t, err)
	assert.Empty(t, other.GetBytes())
	cleared, err := g.caches.ClearCache(t.Context(), &modelv1.ClearCacheRequest{Parent: project, Model: "mockllm/model"})
	require.NoError(t, err)
	assert.Equal(t, int64(2), cleared.GetRemoved())
}

func TestModelsAndProvidersAreListed(t *testing.T) {
	t.Parallel()
	g := start(t)
	providers, err := g.models.ListProviders(t.Context(), &modelv1.ListProvidersRequest{})
	require.NoError(t, err)
	var names, usable []string
	for _, p := range providers.GetProviders() {
		names = append(names, p.GetName())
		for _, account := range p.GetAccounts() {
			if account.GetUsable() && account.GetService() == "" { // A cloud may give credentials once they are needed.
				usable = append(usable, p.GetName())
			}
			assert.Equal(t, account.GetUsable(), account.GetProblem() == "", "an account that cannot be used says why")
		}
	}
	assert.Subset(t, names, []string{"anthropic", "deepseek", "google", "mockllm", "openai", "openai-api"})
	assert.IsIncreasing(t, names)
	assert.Equal(t, []string{"llama-cpp-python", "mockllm", "ollama"}, usable, "those that need no key, and have an address")
	first, err := g.models.ListProviders(t.Context(), &modelv1.ListProvidersRequest{PageSize: 3})
	require.NoError(t, err)
	rest, err := g.models.ListProviders(t.Context(), &modelv1.ListProvidersRequest{PageSize: 1000, PageToken: first.GetNextPageToken()})
	require.NoError(t, err)
	assert.Len(t, first.GetProviders(), 3)
	require.Len(t, rest.GetProviders(), len(names)-3)
	assert.Equal(t, "openai", rest.GetProviders()[slices.Index(names, "openai")-3].GetName())
	assert.Equal(t, []string{"openai-chat"}, rest.GetProviders()[slices.Index(names, "openai")-3].GetDialects())
	assert.Empty(t, rest.GetNextPageToken())
	models, err := g.models.ListModels(t.Context(), &modelv1.ListModelsRequest{Provider: "mockllm"})
	require.NoError(t, err)
	require.Len(t, models.GetModels(), 1)
	model, err := g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "providers/mockllm/models/a/b"})
	require.NoError(t, err)
	assert.Equal(t, "mockllm/a/b", model.GetShortName())
	assert.True(t, model.GetCapabilities().GetTools())
	model, err = g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "providers/openai/models/gpt-4o"})
	require.NoError(t, err, "a model is known without a key")
	assert.Equal(t, int32(10), model.GetDefaultMaxConnections())
	_, err = g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "models/x"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), err)
	_, err = g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{Parent: project, Model: "mockllm/model", ModelArgsJson: `{"script": "nowhere"}`})
	require.ErrorContains(t, err, `no script "nowhere" is configured`, "what a model's arguments name is looked at")
	count, err := g.models.CountTokens(t.Context(), &modelv1.CountTokensRequest{Parent: project, Model: "mockllm/model", Messages: ask("", "12345678").Messages})
	require.NoError(t, err)
	assert.Equal(t, int64(3), count.GetMessageTokens())
	assert.True(t, count.GetEstimated())
	batches, err := g.batches.ListBatches(t.Context(), &modelv1.ListBatchesRequest{Parent: project})
	require.NoError(t, err)
	assert.Empty(t, batches.GetBatches())
	_, err = g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "providers/nosuch/models/x"})
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND, rpcerr.Reason(err), "%v", err)
}

// Each account that is listed has a budget, also where the names of models begin with it.
func TestEachListedAccountHasABudget(t *testing.T) {
	t.Parallel()
	vendor := provider.Account{KeyOptional: true, BaseURL: vendorWith(t, says(http.StatusOK, "application/json", whole)).URL}
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.OpenAI.Azure.Accounts = map[string]azureauth.Account{"eu": {Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: vendor.BaseURL}}}
		c.OpenAIAPI.Services = map[string]provider.Account{"one": vendor, "two": vendor}
	})
	providers, err := g.models.ListProviders(t.Context(), &modelv1.ListProvidersRequest{Parent: project})
	require.NoError(t, err)
	for _, p := range providers.GetProviders() {
		for _, a := range p.GetAccounts() {
			_, err := g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: "accounts/" + p.GetName() + "/" + a.GetName()})
			require.NoError(t, err, "%s/%s", p.GetName(), a.GetName())
		}
	}

	_, err = g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{
		Budget:     &modelv1.Budget{Name: "accounts/openai-api/one/budgets/account", MaxTokens: new(int64(0))},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"max_tokens"}},
	})
	require.NoError(t, err)
	request := ask("", "q")
	request.Model = "openai-api/one/m"
	_, err = g.models.Generate(t.Context(), request)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BUDGET_EXHAUSTED), "%v", err)
	request.Model = "openai-api/two/m"
	_, err = g.models.Generate(t.Context(), request)
	require.NoError(t, err, "another service has a budget of its own")
	pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/openai-api/two"})
	require.NoError(t, err)
	assert.Len(t, pools.GetConnectionPools(), 1)
}
