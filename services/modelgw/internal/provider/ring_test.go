package provider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// instance is a provider with the access that it was opened with.
type instance struct {
	provider.Provider
	access provider.Access
	closed *int
}

func (i instance) Capabilities() provider.Capabilities {
	return provider.Capabilities{ConnectionKey: "pool", Server: i.access.Endpoint}
}

func (i instance) Check(*modelv1.GenerateConfig) error { return nil }

func (i instance) Generate(context.Context, *provider.Request) (*provider.Response, error) {
	return nil, errors.New("not here")
}

func (i instance) Close() error {
	*i.closed++
	return nil
}

// ringOf opens a model of an account.
func ringOf(t *testing.T, account provider.Account, baseURL string) (*provider.Registry, *provider.Model, *int, error) {
	t.Helper()
	accounts := provider.Accounts{
		Provider: "test", Named: map[string]provider.Account{provider.DefaultAccount: account}, Vendor: "https://vendor.example", KeyHint: func(string) string { return "set a key" },
	}
	closed := 0
	registry := &provider.Registry{}
	require.NoError(t, registry.Register(provider.Kind{Name: "test", Accounts: accounts.Usable(), Open: func(s provider.Spec) (provider.Provider, error) {
		access, err := accounts.Open(s)
		if err != nil {
			return nil, err
		}
		return instance{access: access, closed: &closed}, nil
	}}))
	model, err := registry.Open(provider.Ref{Model: "test/m", BaseURL: baseURL})
	return registry, model, &closed, err
}

func accessOf(m *provider.Model) provider.Access { return m.Provider.(instance).access }

// three is an account with a key of its own and two further ones.
func three() provider.Account {
	return provider.Account{APIKey: config.NewSecret("own"), Keys: []provider.Key{
		{APIKey: config.NewSecret("first"), Weight: new(2)}, {APIKey: config.NewSecret("second"), BaseURL: "https://elsewhere.example/"},
	}}
}

func conversation(n int) []byte { return fmt.Appendf(nil, "conversation %d", n) }

func TestEachCredentialIsAnInstanceWithItsOwnKeyAndAddress(t *testing.T) {
	t.Parallel()
	registry, _, closed, err := ringOf(t, three(), "")
	require.NoError(t, err)
	all, err := registry.All(provider.Ref{Model: "test/m"})
	require.NoError(t, err)
	require.Len(t, all, 3)
	for i, want := range []struct{ key, endpoint string }{{"own", "https://vendor.example"}, {"first", "https://vendor.example"}, {"second", "https://elsewhere.example"}} {
		access := accessOf(all[i])
		assert.Equal(t, want.key, access.APIKey.Reveal())
		assert.Equal(t, want.endpoint, access.Endpoint)
		assert.Equal(t, i, access.Key)
		assert.Equal(t, i, all[i].Key)
		assert.Empty(t, access.Keys, "an instance knows its own credential alone")
	}
	require.NoError(t, registry.Close())
	assert.Equal(t, 3, *closed)
}

func TestTheServersOfAModelAreThoseOfItsCredentials(t *testing.T) {
	t.Parallel()
	secret := provider.Account{APIKey: config.NewSecret("k"), BaseURL: "https://me:word@own.example/v1?key=s"}
	for name, c := range map[string]struct {
		account provider.Account
		asked   string
		want    []string
	}{
		"each credential's":     {three(), "", []string{"https://elsewhere.example", "https://vendor.example"}},
		"the requested address": {three(), "https://vendor.example/", []string{"https://vendor.example"}},
		"without secrets":       {secret, "", []string{"https://me:xxxxx@own.example/v1?xxxxx"}},
	} {
		_, model, _, err := ringOf(t, c.account, c.asked)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, model.Servers(), name)
	}
}

func TestAnAccountOfKeysAloneHasNoOwn(t *testing.T) {
	t.Parallel()
	account := three()
	account.APIKey = config.Secret{}
	_, model, _, err := ringOf(t, account, "")
	require.NoError(t, err)
	assert.Equal(t, 1, model.Key)
	assert.True(t, model.HasKeys())

	account.Keys = account.Keys[:1]
	_, model, _, err = ringOf(t, account, "")
	require.NoError(t, err)
	assert.False(t, model.HasKeys())
	assert.Equal(t, "first", accessOf(model).APIKey.Reveal())
	usable := (&provider.Accounts{Named: map[string]provider.Account{"a": account}, KeyHint: func(string) string { return "" }}).Usable()
	assert.True(t, usable[0].GetUsable())
	assert.Equal(t, int32(1), usable[0].GetKeys())
}

// A credential without a key is named, and the account is not shown as usable.
func TestACredentialWithoutAKeyIsNamed(t *testing.T) {
	t.Parallel()
	account := three()
	account.Keys[1].APIKey = config.Secret{}
	_, _, _, err := ringOf(t, account, "")
	require.ErrorContains(t, err, "set api_key of keys[1]")
	usable := (&provider.Accounts{Named: map[string]provider.Account{"a": account}, KeyHint: func(string) string { return "set a key" }}).Usable()
	assert.False(t, usable[0].GetUsable())
	assert.Equal(t, "set api_key of keys[1]", usable[0].GetProblem())
	account.KeyOptional = true
	_, _, _, err = ringOf(t, account, "")
	require.NoError(t, err)
}

// A credential with an address of its own is sent to no other one, whatever a request asks for.
func TestACredentialStaysAtItsAddress(t *testing.T) {
	t.Parallel()
	account := three()
	account.AllowedBaseURLs = []string{"https://allowed.example"}
	registry, _, _, err := ringOf(t, account, "")
	require.NoError(t, err)
	for asked, want := range map[string][]string{"https://allowed.example/v1": {"own", "first"}, "https://elsewhere.example": {"second"}, "https://vendor.example": {"own", "first"}} {
		all, err := registry.All(provider.Ref{Model: "test/m", BaseURL: asked})
		require.NoError(t, err, asked)
		var keys []string
		for _, m := range all {
			keys = append(keys, accessOf(m).APIKey.Reveal())
			assert.Equal(t, asked, accessOf(m).Endpoint)
		}
		assert.Equal(t, want, keys, asked)
	}
	_, err = registry.Open(provider.Ref{Model: "test/m", BaseURL: "https://evil.example"})
	assert.ErrorContains(t, err, "not allowed")
}

func TestConversationsAreDistributedByWeightAndStay(t *testing.T) {
	t.Parallel()
	_, model, _, err := ringOf(t, three(), "")
	require.NoError(t, err)
	const conversations = 4000
	counts := map[int]int{}
	for n := range conversations {
		key := model.Pick(conversation(n), nil, nil).Key
		assert.Equal(t, key, model.Pick(conversation(n), nil, nil).Key)
		counts[key]++
	}
	for key, part := range map[int]float64{0: 0.25, 1: 0.5, 2: 0.25} {
		assert.InDelta(t, part, float64(counts[key])/conversations, 0.03, "credential %d", key)
	}
	account := three()
	account.Keys = account.Keys[:1]
	_, fewer, _, err := ringOf(t, account, "")
	require.NoError(t, err)
	for n := range 200 {
		if before := model.Pick(conversation(n), nil, nil).Key; before != 2 {
			assert.Equal(t, before, fewer.Pick(conversation(n), nil, nil).Key, "what a credential that is gone did not have stays")
		}
	}
}

func TestACredentialRestsAfterItsOwnFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want time.Duration
		why  string
	}{
		{&provider.Error{Class: provider.RateLimit, Status: 429}, 10 * time.Second, "rate_limited"},
		{&provider.Error{Class: provider.RateLimit, Status: 429, RetryAfter: 3 * time.Second}, 3 * time.Second, "rate_limited"},
		{&provider.Error{Class: provider.RateLimit, Status: 429, RetryAfter: time.Hour}, 5 * time.Minute, "rate_limited"},
		{&provider.Error{Auth: true, Status: 401}, time.Minute, "refused"},
		{&provider.Error{Status: http.StatusForbidden}, time.Minute, "refused"},
		{&provider.Error{Status: http.StatusPaymentRequired}, time.Minute, "spent"},
		{&provider.Error{Status: http.StatusTooManyRequests}, time.Minute, "spent"},
		{&provider.Error{Class: provider.Transient}, 10 * time.Second, "unreachable"},
		{&provider.Error{Class: provider.Transient, Cause: provider.ErrCut}, 0, ""},
		{&provider.Error{Class: provider.Transient, Status: 503}, 0, ""},
		{&provider.Error{Status: 400}, 0, ""},
		{context.Canceled, 0, ""},
		{nil, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, model, _, err := ringOf(t, three(), "")
			require.NoError(t, err)
			first := model.Pick(conversation(1), nil, nil)
			rest, why, _ := first.Rest(tt.err)
			assert.Equal(t, tt.want, rest, "%v", tt.err)
			assert.Equal(t, tt.why, why)
			next := model.Pick(conversation(1), nil, nil)
			assert.Equal(t, rest > 0, next.Key != first.Key, "%v", tt.err)
			time.Sleep(rest + 1)
			assert.Equal(t, first.Key, model.Pick(conversation(1), nil, nil).Key, "it is itself again")
		})
	}
}

func TestWhereAllRestTheShortestRestCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry, model, _, err := ringOf(t, three(), "")
		require.NoError(t, err)
		all, err := registry.All(provider.Ref{Model: "test/m"})
		require.NoError(t, err)
		assert.True(t, model.Ready([]int{0, 1}, nil))
		assert.False(t, model.Ready([]int{0, 1, 2}, nil))
		for i, m := range all {
			m.Rest(&provider.Error{Class: provider.RateLimit, RetryAfter: time.Duration(3-i) * time.Second})
		}
		assert.Equal(t, 2, model.Pick(conversation(1), nil, nil).Key)
		assert.False(t, model.Ready(nil, nil))
		registry.Replace()
		assert.True(t, model.Ready(nil, nil), "a new configuration ends all rests")
	})
}

// What a call in flight at a reload finds out of an old credential does not concern the new one of its number.
func TestAReplacedCredentialMakesNoNewOneRest(t *testing.T) {
	t.Parallel()
	registry, old, _, err := ringOf(t, three(), "")
	require.NoError(t, err)
	registry.Replace(old.Kind)
	current, err := registry.Open(provider.Ref{Model: "test/m"})
	require.NoError(t, err)
	failing := old.Pick(conversation(1), nil, nil)
	rest, _, _ := failing.Rest(&provider.Error{Auth: true, Status: 401})
	assert.Positive(t, rest)
	assert.NotEqual(t, failing.Key, old.Pick(conversation(1), nil, nil).Key)
	assert.Equal(t, failing.Key, current.Pick(conversation(1), nil, nil).Key)
}

func TestATriedCredentialComesAfterTheOthers(t *testing.T) {
	t.Parallel()
	_, model, _, err := ringOf(t, three(), "")
	require.NoError(t, err)
	first := model.Pick(conversation(1), nil, nil)
	second := model.Pick(conversation(1), []int{first.Key}, nil)
	assert.NotEqual(t, first.Key, second.Key)
	third := model.Pick(conversation(1), []int{first.Key, second.Key}, nil)
	assert.Equal(t, first.Key, model.Pick(conversation(1), []int{0, 1, 2}, nil).Key)
	assert.Equal(t, third.Key, model.Pick(conversation(1), nil, func(m *provider.Model) bool { return m.Key == third.Key }).Key)
}

func TestAKeyWithoutACredentialIsRefused(t *testing.T) {
	t.Parallel()
	require.Error(t, provider.Key{}.Check())
	require.Error(t, provider.Key{APIKey: config.NewSecret("k"), Weight: new(-1)}.Check())
	require.Error(t, provider.Key{APIKey: config.NewSecret("k"), Weight: new(1001)}.Check())
	require.Error(t, provider.Key{APIKey: config.NewSecret("k"), Weight: new(0)}.Check(), "it is not one that is left out")
	require.NoError(t, provider.Key{APIKey: config.NewSecret("k"), Weight: new(1)}.Check())
	require.NoError(t, provider.Key{BaseURL: "http://local:1"}.Check())
}

// Replace closes what it replaces, and opened models of other kinds stay.
func TestReplacedKindsAreOpenedAnew(t *testing.T) {
	t.Parallel()
	registry, before, closed, err := ringOf(t, three(), "")
	require.NoError(t, err)
	kind := registry.Kinds()[0]
	registry.Replace()
	same, err := registry.Open(provider.Ref{Model: "test/m"})
	require.NoError(t, err)
	assert.Same(t, before, same)
	registry.Replace(kind)
	assert.Equal(t, 3, *closed)
	other, err := registry.Open(provider.Ref{Model: "test/m"})
	require.NoError(t, err)
	assert.NotSame(t, before, other)
}
