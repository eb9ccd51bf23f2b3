package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// opened is a provider that counts how often it is closed.
type opened struct {
	provider.Provider
	closed int
}

func (o *opened) Close() error {
	o.closed++
	return nil
}

// openAnything is a kind that opens whatever is asked for.
func openAnything(name string) provider.Kind {
	return provider.Kind{Name: name, Open: func(provider.Spec) (provider.Provider, error) { return &opened{}, nil }}
}

func registry(t testing.TB, kinds ...string) *provider.Registry {
	t.Helper()
	r := &provider.Registry{}
	for _, name := range kinds {
		require.NoError(t, r.Register(openAnything(name)))
	}
	return r
}

// reference is how a case names a model.
type reference struct {
	Model   string          `json:"model"`
	Config  json.RawMessage `json:"config"`
	BaseURL string          `json:"base_url"`
	APIKey  string          `json:"api_key"`
	Role    string          `json:"role"`
	Memoize *bool           `json:"memoize"`
}

// A model of a provider that is not known is refused, and the error names it.
func TestGoldenUnknownProviders(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "request", goldentest.Load(t, "providers/request/nosuch/*.json"), func(t *goldentest.T, c goldentest.Case) {
		var form struct{ Provider, Model string }
		require.NoError(t, c.Decode(&form))
		_, err := registry(t, "mockllm", "openai").Open(provider.Ref{Project: "p", Model: form.Provider + "/" + form.Model})
		require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND), "%v", err)
		require.ErrorContains(t, err, form.Provider)
	})
}

func TestGoldenModelNames(t *testing.T) {
	t.Parallel()
	cases := goldentest.Load(t, "core/model-names.jsonl")
	// What is known of a model is package modeldata's.
	cases = slices.DeleteFunc(cases, func(c goldentest.Case) bool { return c.Op() == "model_info" })
	goldentest.Run(t, "model-names", cases, func(t *goldentest.T, c goldentest.Case) {
		r := registry(t, "mockllm", "openai", "together")
		switch c.Op() {
		case "get_model":
			var form struct{ Input reference }
			require.NoError(t, c.Decode(&form))
			model, err := r.Open(provider.Ref{Project: "p", Model: form.Input.Model})
			if _, fails := c.At("expect", "error").(map[string]any); fails {
				require.Error(t, err)
				list, _ := c.At("expect", "mentions").([]any)
				for _, mention := range list {
					named := strings.NewReplacer("<api_name>/<model_name>", "<provider>/<model>").Replace(fmt.Sprint(mention))
					require.ErrorContains(t, err, named)
				}
				return
			}
			require.NoError(t, err)
			t.Equal(c.At("expect", "name"), model.Name)
			t.Equal(c.At("expect", "string"), model.FullName())
		case "same_instance":
			var form struct {
				Input struct{ First, Second reference }
			}
			require.NoError(t, c.Decode(&form))
			first, second := form.Input.First, form.Input.Second
			a, err := r.Open(provider.Ref{Project: "p", Model: first.Model, BaseURL: first.BaseURL})
			require.NoError(t, err)
			b, err := r.Open(provider.Ref{Project: "p", Model: second.Model, BaseURL: second.BaseURL})
			require.NoError(t, err)
			t.Equal(c.At("expect"), a == b)
		default:
			t.Skipf("no driver for %q", c.Op())
		}
	})
}

func TestEqualReferencesShareOneInstance(t *testing.T) {
	t.Parallel()
	r := registry(t, "x")
	open := func(ref provider.Ref) *provider.Model {
		m, err := r.Open(ref)
		require.NoError(t, err)
		return m
	}
	base := provider.Ref{Project: "p", Model: "x/m"}
	first := open(base)
	assert.Same(t, first, open(base))
	assert.Same(t, first, open(provider.Ref{Project: "p", Model: "x/m", Account: "default"}))
	for _, other := range []provider.Ref{
		{Project: "q", Model: "x/m"},
		{Project: "p", Model: "x/M"},
		{Project: "p", Model: "x/m", Account: "spare"},
		{Project: "p", Model: "x/m", Args: "{}"},
	} {
		assert.NotSame(t, first, open(other))
	}
	require.NoError(t, r.Close())
	assert.Equal(t, 1, first.Provider.(*opened).closed)
	assert.NotSame(t, first, open(base), "a closed instance is never given out again")
}

func TestInstancesNotAskedForLongestAreClosed(t *testing.T) {
	t.Parallel()
	r := registry(t, "x")
	var all []*provider.Model
	for i := range 1100 {
		m, err := r.Open(provider.Ref{Project: "p", Model: fmt.Sprintf("x/%d", i)})
		require.NoError(t, err)
		all = append(all, m)
		_, err = r.Open(provider.Ref{Project: "p", Model: "x/0"})
		require.NoError(t, err)
	}
	closed := 0
	for _, m := range all {
		closed += m.Provider.(*opened).closed
	}
	assert.Equal(t, 1100-1024, closed)
	assert.Zero(t, all[0].Provider.(*opened).closed, "this one was asked for again and again")
}

// Arguments are kept with an instance, so that long ones leave room for fewer.
func TestInstancesWithLongArgumentsAreFewer(t *testing.T) {
	t.Parallel()
	r := registry(t, "x")
	closed := func(size, count int) int {
		var all []*provider.Model
		for i := range count {
			m, err := r.Open(provider.Ref{Project: "p", Model: fmt.Sprintf("x/%d of %d", i, size), Args: strings.Repeat(" ", size) + "{}"})
			require.NoError(t, err)
			all = append(all, m)
		}
		closed := 0
		for _, m := range all {
			closed += m.Provider.(*opened).closed
		}
		return closed
	}
	assert.Zero(t, closed(1<<10, 100))
	assert.Equal(t, 100-60, closed(1<<20, 100), "1 MiB counts 17")
	assert.Equal(t, 1, closed(65<<20, 2), "the latest one stays, however long")
}

func TestANameIsRegisteredOnce(t *testing.T) {
	t.Parallel()
	r := registry(t, "x")
	err := r.Register(openAnything("x"))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_EXISTS), err)
}

func TestErrorsAreCutAndKeepTheirCause(t *testing.T) {
	t.Parallel()
	e := &provider.Error{Provider: "x", Status: 400, Message: strings.Repeat("ü", 10_000)}
	assert.Less(t, len(e.Error()), 600)
	assert.Equal(t, strings.ToValidUTF8(e.Error(), "?"), e.Error())
	assert.Equal(t, provider.Final, provider.ClassOfError(fmt.Errorf("wrapped: %w", e)))
	assert.Equal(t, provider.RateLimit, provider.ClassOfError(fmt.Errorf("wrapped: %w", &provider.Error{Class: provider.RateLimit})))
	sent := provider.RPC(e)
	found, ok := provider.As(sent)
	require.True(t, ok)
	assert.Same(t, e, found)
}

func TestArgumentsAreOneObjectOfKnownMembers(t *testing.T) {
	t.Parallel()
	type arguments struct {
		Stream bool `json:"stream"`
		Nested struct {
			Size int `json:"size"`
		} `json:"nested"`
	}
	for args, want := range map[string]struct {
		arguments
		says string
	}{
		``:                         {},
		`{}`:                       {},
		` {"stream": true} `:       {arguments: arguments{Stream: true}},
		`{"strem": true}`:          {says: `unknown argument "strem"; did you mean stream? known: nested, stream`},
		`{"nested": {"strem": 1}}`: {says: `unknown argument "strem", in an object of another argument`},
		`{"stream": 1}`:            {says: "stream"},
		`[]`:                       {says: "array"},
		`{"stream": true`:          {says: "unexpected"},
		`{} {"stream": true}`:      {says: "more follows"},
		`{}]`:                      {says: "more follows"},
	} {
		var got arguments
		err := provider.Spec{Args: args}.Arguments(&got)
		if want.says == "" {
			require.NoError(t, err, args)
			assert.Equal(t, want.arguments, got, args)
			continue
		}
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), args)
		assert.ErrorContains(t, err, "model_args_json: ", args)
		assert.ErrorContains(t, err, want.says, args)
	}
}

func TestAnAccountWithoutAKeyIsLoggedWhenItIsUsed(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := &provider.Registry{Logger: slog.New(slog.NewTextHandler(&b, nil))}
	require.NoError(t, r.Register(provider.Kind{Name: "openai", Open: func(s provider.Spec) (provider.Provider, error) {
		return nil, provider.NoKey("openai", s.Account, "set OPENAI_API_KEY")
	}}))
	require.NoError(t, r.Register(provider.Kind{Name: "other", Open: func(provider.Spec) (provider.Provider, error) { return nil, assert.AnError }}))
	_, err := r.Open(provider.Ref{Model: "other/m"})
	require.Error(t, err)
	assert.Empty(t, b.String())
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			_, err := r.Open(provider.Ref{Model: "openai/gpt-4o"})
			assert.True(t, rpcerr.Concerns("model", err), "no account was named: %v", err)
		})
	}
	callers.Wait()
	_, err = r.Open(provider.Ref{Model: "openai/gpt-4o", Account: "default"})
	assert.True(t, rpcerr.Concerns("account", err), "it was named: %v", err)
	assert.Equal(t, 1, strings.Count(b.String(), "\n"), b.String())
	assert.Contains(t, b.String(), `msg="an account of a provider cannot be used" provider=openai account=default`)
	assert.Contains(t, b.String(), "set OPENAI_API_KEY")
}

// Callers name accounts as they like: the line about one is short, whatever its name.
func TestTheLineAboutAnUnusableAccountIsShort(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := &provider.Registry{Logger: slog.New(slog.NewTextHandler(&b, nil))}
	require.NoError(t, r.Register(provider.Kind{Name: "openai", Open: func(s provider.Spec) (provider.Provider, error) {
		return nil, provider.NoKey("openai", s.Account, "set OPENAI_API_KEY")
	}}))
	_, err := r.Open(provider.Ref{Model: "openai/gpt-4o", Account: strings.Repeat("a", 10_000)})
	assert.True(t, rpcerr.Concerns("account", err), "%v", err)
	assert.Contains(t, b.String(), "set OPENAI_API_KEY")
	assert.Less(t, b.Len(), 1000)
}

func TestASealerIsTheAccountAtItsServer(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "gemini/api.example.com/default", provider.Sealer("gemini", "https://api.example.com/v1/models/m", "default"))
	assert.Equal(t, "openai-chat/router.example/default/anthropic", provider.Sealer("openai-chat", "https://router.example/v1", "default", "anthropic"))
	m := &provider.Model{Kind: provider.Kind{Name: "k", Dialect: "d"}, Account: "a", Provider: withSealer("")}
	assert.Equal(t, "d/k/a", m.CapabilitiesOf(nil).Sealer, "a provider need not name it")
	m.Kind.Dialect = ""
	assert.Empty(t, m.CapabilitiesOf(nil).Sealer, "a scripted model plays any vendor")
	m.Provider = withSealer("own")
	assert.Equal(t, "own", m.CapabilitiesOf(nil).Sealer)
}

// withSealer is a provider with capabilities alone.
type withSealer string

func (s withSealer) Capabilities() provider.Capabilities {
	return provider.Capabilities{Sealer: string(s)}
}
func (withSealer) Check(*modelv1.GenerateConfig) error { return nil }
func (withSealer) Close() error                        { return nil }
func (withSealer) Generate(context.Context, *provider.Request) (*provider.Response, error) {
	return nil, errors.ErrUnsupported
}
