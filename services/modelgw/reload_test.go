package modelgw_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// reloadedWith is a gateway and its configuration, which reload changes.
func reloadedWith(t *testing.T, v *vendor) (*web, func(change func(*modelgw.Config))) {
	t.Helper()
	var current modelgw.Config
	g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { current = *c })
	return g, func(change func(*modelgw.Config)) {
		change(&current)
		require.NoError(t, current.Validate())
		require.NoError(t, g.service.Reload(t.Context(), current))
	}
}

// A call that is in flight at a reload ends with the account that it began with; the next one has the new.
func TestAReloadDropsNothing(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}, 2), make(chan struct{})
	slow := vendorWith(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-finish
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, whole)
	})
	next := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g, reload := reloadedWith(t, slow)
	ended := make(chan error, 2)
	go func() {
		_, err := g.models.Generate(waittest.Context(t), openaiAsks("q"))
		ended <- err
	}()
	relayed, err := http.NewRequestWithContext(waittest.Context(t), http.MethodPost, g.url+chatPath, strings.NewReader(`{"model":"openai/gpt-4o",`+user+`}`))
	require.NoError(t, err)
	relayed.Header.Set("Authorization", "Bearer right")
	go func() {
		answer, err := g.client.Do(relayed)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		ended <- err
	}()
	for range 2 {
		waittest.For(t, begun, "the call at the vendor")
	}
	reload(func(c *modelgw.Config) {
		c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret("new-key"), next.URL+"/v1"
	})
	_, err = g.models.Generate(t.Context(), openaiAsks("q"))
	require.NoError(t, err)
	assert.Equal(t, []string{"new-key"}, keysAsked(next))
	close(finish)
	for range 2 {
		require.NoError(t, waittest.For(t, ended, "the call in flight"))
	}
	assert.Len(t, keysAsked(slow), 2)
}

func TestAReloadTakesPricesFactsAliasesAndBudgets(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g, reload := reloadedWith(t, v)
	reload(func(c *modelgw.Config) {
		c.Prices = map[string]modelgw.Price{"openai/ours": {Rates: modelgw.Rates{Input: new(1.0), Output: new(2.0)}}}
		c.Endpoints.Aliases = map[string]string{"house": "openai/ours"}
		c.Budgets = map[string]modelgw.Budget{"projects/default": {MaxTokens: new(int64(1_000_000))}}
	})
	known, err := g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "providers/openai/models/ours"})
	require.NoError(t, err)
	assert.InDelta(t, 2.0, known.GetPrices().GetOutput(), 0)
	assert.Equal(t, "configuration", known.GetPricesSource())
	assert.Equal(t, http.StatusOK, g.post(t, chatPath, `{"model":"house","messages":[{"role":"user","content":"q"}]}`).StatusCode)
	budgets, err := g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
	require.NoError(t, err)
	assert.Equal(t, int64(1_000_000), budgets.GetBudgets()[0].GetMaxTokens())

	_, err = g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: &modelv1.Budget{Name: project + "/budgets/project", MaxTokens: new(int64(5_000_000))}})
	require.NoError(t, err)
	reload(func(c *modelgw.Config) { c.Prices = nil })
	budgets, err = g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
	require.NoError(t, err)
	assert.Equal(t, int64(5_000_000), budgets.GetBudgets()[0].GetMaxTokens(), "what an operator changed since then stays")
	reload(func(c *modelgw.Config) { c.Budgets = nil })
	budgets, err = g.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
	require.NoError(t, err)
	assert.Nil(t, budgets.GetBudgets()[0].MaxTokens)
	assert.Positive(t, budgets.GetBudgets()[0].GetSpentTokens(), "what was spent stays too")
}

// A scripted model keeps its place in the script when another provider changes.
func TestAProviderThatDidNotChangeGoesOn(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g, reload := reloadedWith(t, v)
	script := `{"outputs": ["one", "two"]}`
	for _, want := range []string{"one", "two"} {
		answer, err := g.models.Generate(t.Context(), ask(script, "q"))
		require.NoError(t, err)
		assert.Equal(t, want, answer.GetOutput().GetCompletion())
		reload(func(c *modelgw.Config) { c.OpenAI.APIKey = config.NewSecret(want) })
	}
}

// A process reloads until it ends, and so also while and after its services stop.
func TestAServiceThatHasStoppedIsNotReloaded(t *testing.T) {
	t.Parallel()
	var current modelgw.Config
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) { current = *c })
	g.gateway.close()
	current.OpenAI.APIKey = config.NewSecret("new-key")
	assert.ErrorContains(t, g.service.Reload(t.Context(), current), "modelgw has stopped")
}

// A provider that is replaced keeps no idle connection.
func TestAReloadClosesIdleConnections(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 9)
	v := &vendor{Server: httptest.NewUnstartedServer(says(http.StatusOK, "application/json", whole))}
	v.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	v.Start()
	t.Cleanup(v.Close)
	g, reload := reloadedWith(t, v)
	for range 2 {
		_, err := g.models.Generate(waittest.Context(t), openaiAsks("q"))
		require.NoError(t, err)
	}
	assert.Empty(t, closed)
	reload(func(c *modelgw.Config) { c.OpenAI.APIKey = config.NewSecret("another") })
	waittest.For(t, closed, "the end of the idle connection")
}
