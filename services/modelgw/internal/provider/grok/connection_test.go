package grok_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/grok"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// An address without a scheme has TLS, unless it is loopback.
func TestWhichAddressesHaveTLS(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"": "", "api.x.ai": "https://api.x.ai", "api.x.ai:443": "https://api.x.ai:443", "10.0.0.5:50051": "https://10.0.0.5:50051",
		"localhost:50051": "http://localhost:50051", "127.0.0.1:50051": "http://127.0.0.1:50051", "[::1]:50051": "http://[::1]:50051",
		"localhost.example:1": "https://localhost.example:1", "//api.x.ai": "https://api.x.ai", "http://proxy:1": "http://proxy:1", "https://localhost:1": "https://localhost:1",
	} {
		assert.Equal(t, want, grok.WithScheme(given), given)
	}
}

// A host is a host, also if gRPC has a way to find servers that is called so.
func TestHostsThatAreNamedLikeResolvers(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"unix", "passthrough", "dns", "unix-abstract"} {
		conn, err := grok.ConnectionTo("https://" + host + ":50051")
		require.NoError(t, err)
		assert.Equal(t, "dns:///"+host+":50051", conn.CanonicalTarget())
		require.NoError(t, conn.Close())
	}
}

// Opening calls no one, so that a server that is away fails the calls alone.
func TestOpeningCallsNoOne(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = opened(t, "grok-4-fast", l.Addr().String()).Generate(t.Context(), question())
	failure, ok := provider.As(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, provider.Transient, failure.Class)
	assert.ErrorContains(t, err, l.Addr().String())
}

func TestWhatIsNotConfiguredIsSaid(t *testing.T) {
	t.Parallel()
	key := config.NewSecret("key-of-the-account")
	kind, closeAll := grok.Kind(grok.Config{Accounts: map[string]provider.Account{
		"free":   {KeyOptional: true, BaseURL: "http://proxy:50051", AllowedBaseURLs: []string{"other:50051", "https://user:password@third", "https://fourth/v1"}},
		"plain":  {APIKey: key, BaseURL: "http://10.0.0.5:50051"},
		"broken": {KeyOptional: true, BaseURL: "https://"},
	}})
	t.Cleanup(func() { require.NoError(t, closeAll()) })
	const invalid, unset = errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED
	for name, tt := range map[string]struct {
		spec   provider.Spec
		reason errorsv1.ErrorReason
		says   string
	}{
		"no key":                  {provider.Spec{Account: "default"}, unset, "XAI_API_KEY"},
		"a key without TLS":       {provider.Spec{Account: "plain"}, unset, "without TLS"},
		"no host":                 {provider.Spec{Account: "broken"}, invalid, "base_url"},
		"an address with a login": {provider.Spec{Account: "free", BaseURL: "https://user:password@third"}, invalid, "base_url"},
		"an address with a path":  {provider.Spec{Account: "free", BaseURL: "https://fourth/v1"}, invalid, "host and port"},
		"an address of anybody":   {provider.Spec{Account: "free", BaseURL: "http://elsewhere:1"}, invalid, "not allowed"},
		"an unknown argument":     {provider.Spec{Account: "free", Args: `{"steaming":true}`}, invalid, "steaming"},
		"no tier":                 {provider.Spec{Account: "free", Args: `{"service_tier":"flex"}`}, invalid, "service_tier"},
		"no streaming":            {provider.Spec{Account: "free", Args: `{"streaming":"yes"}`}, invalid, "streaming"},
	} {
		tt.spec.Model = "grok-4-fast"
		_, err := kind.Open(tt.spec)
		assert.Equal(t, tt.reason, rpcerr.Reason(err), "%s: %v", name, err)
		require.ErrorContains(t, err, tt.says, name)
		assert.NotContains(t, err.Error(), "key-of-the-account", name)
		assert.NotContains(t, err.Error(), "password@", name)
	}
	for _, address := range []string{"", "other:50051", "https://other:50051"} {
		_, err := kind.Open(provider.Spec{Model: "grok-4-fast", Account: "free", BaseURL: address, Args: `{"streaming":"auto","disable_retry":true,"service_tier":"priority"}`})
		require.NoError(t, err, address)
	}
}

// The variables are those of xAI's client, and of Inspect.
func TestVariablesInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ env, want map[string]string }{
		"xAI's first": {
			map[string]string{"XAI_API_KEY": "first-of-the-keys", "GROK_API_KEY": "second-of-the-keys", "XAI_BASE_URL": "127.0.0.1:1", "GROK_BASE_URL": "127.0.0.1:2"},
			map[string]string{"url": "http://127.0.0.1:1"},
		},
		"then the others": {map[string]string{"GROK_API_KEY": "second-of-the-keys", "GROK_BASE_URL": "127.0.0.1:2"}, map[string]string{"url": "http://127.0.0.1:2"}},
		"xAI's own":       {map[string]string{"XAI_API_KEY": "first-of-the-keys"}, map[string]string{"url": "https://api.x.ai"}},
	} {
		var c grok.Config
		require.NoError(t, config.Load(t.Context(), &c, "", func(variable string) (string, bool) {
			value, ok := tt.env[variable]
			return value, ok
		}))
		kind, closeAll := grok.Kind(c)
		require.NoError(t, closeAll())
		require.Len(t, kind.Accounts, 1)
		assert.True(t, kind.Accounts[0].GetUsable(), name)
		assert.Equal(t, tt.want["url"], kind.Accounts[0].GetBaseUrl(), name)
	}
}

// peers is a server that notes who calls, and with what key.
func peers(t *testing.T, options ...grpc.ServerOption) (address string, seen map[string]bool, keys *[]string) {
	t.Helper()
	seen, keys = map[string]bool{}, &[]string{}
	return serve(t, &server{whole: func(ctx context.Context, _ *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
		from, _ := peer.FromContext(ctx)
		seen[from.Addr.String()] = true
		*keys = append(*keys, header(ctx, "authorization")...)
		return said("fine"), nil
	}}, options...), seen, keys
}

// The models of an account share one connection, also after one of them is closed; other accounts have their own.
func TestModelsOfAnAccountShareAConnection(t *testing.T) {
	t.Parallel()
	address, seen, keys := peers(t)
	kind, closeAll := grok.Kind(grok.Config{APIKey: config.NewSecret("key-of-the-account"), BaseURL: address, Accounts: map[string]provider.Account{
		"team": {APIKey: config.NewSecret("key-of-the-team"), BaseURL: address}, "free": {KeyOptional: true, BaseURL: address},
	}})
	t.Cleanup(func() { require.NoError(t, closeAll()) })
	for _, account := range []string{"default", "default", "team", "free"} {
		for _, name := range []string{"grok-4-fast", "grok-3-mini"} {
			p, err := kind.Open(provider.Spec{Model: name, Account: account})
			require.NoError(t, err)
			_, err = p.Generate(t.Context(), question())
			require.NoError(t, err)
			require.NoError(t, p.Close())
		}
	}
	assert.Len(t, seen, 3)
	mine, teams := "Bearer key-of-the-account", "Bearer key-of-the-team"
	assert.Equal(t, []string{mine, mine, mine, mine, teams, teams}, *keys)
}

// The key goes over TLS to a server that is verified, and not to another.
func TestTheKeyGoesToAVerifiedServer(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	t.Cleanup(certified.Close)
	address, _, keys := peers(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12})))
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	for _, roots := range []*x509.CertPool{x509.NewCertPool(), trusted} {
		kind, closeAll := grok.KindTrusting(grok.Config{APIKey: config.NewSecret("key-of-the-account"), BaseURL: "https://" + address}, roots)
		t.Cleanup(func() { require.NoError(t, closeAll()) })
		p, err := kind.Open(provider.Spec{Model: "grok-4-fast", Account: "default"})
		require.NoError(t, err)
		_, err = p.Generate(t.Context(), question())
		if roots == trusted {
			require.NoError(t, err)
			assert.Equal(t, []string{"Bearer key-of-the-account"}, *keys)
		} else {
			require.Error(t, err)
			assert.Empty(t, *keys)
		}
	}
}

// xAI is told to which conversation a request belongs, unless the caller says it.
func TestTheConversationOfARequest(t *testing.T) {
	t.Parallel()
	var got []string
	address := serve(t, &server{whole: func(ctx context.Context, _ *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
		got = append(got, strings.Join(header(ctx, "x-grok-conv-id"), ","))
		return said("fine"), nil
	}})
	p, r := opened(t, "grok-4-fast", address), question()
	for _, given := range []map[string]string{nil, {"X-Grok-Conv-Id": "mine"}} {
		r.Origin.Attribution = &effectv1.Attribution{Run: "projects/p/runs/a"}
		r.Config = &modelv1.GenerateConfig{ExtraHeaders: &modelv1.HeaderMap{Values: given}}
		_, err := p.Generate(t.Context(), r)
		require.NoError(t, err)
	}
	require.Len(t, got, 2)
	assert.Regexp(t, "^[0-9a-f]{32}$", got[0])
	assert.Equal(t, "mine", got[1])
}

// Further headers are metadata; those that would be lost, or that are the account's, are refused beforehand.
func TestFurtherHeaders(t *testing.T) {
	t.Parallel()
	var got []string
	address := serve(t, &server{whole: func(ctx context.Context, _ *xai.GetCompletionsRequest) (*xai.GetChatCompletionResponse, error) {
		got = append(got, header(ctx, "x-grok-conv-id")...)
		return said("fine"), nil
	}})
	p := opened(t, "grok-4-fast", address)
	with := func(name, value string) *modelv1.GenerateConfig {
		return &modelv1.GenerateConfig{ExtraHeaders: &modelv1.HeaderMap{Values: map[string]string{name: value}}}
	}
	r := question()
	r.Config = with("X-Grok-Conv-Id", "c1")
	_, err := p.Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, []string{"c1"}, got)
	for name, value := range map[string]string{"Authorization": "Bearer x", "grpc-timeout": "1S", "User-Agent": "x", "a b": "x", ":path": "x", "x-own": "line\nline", "": "x"} {
		require.ErrorContains(t, p.Check(with(name, value)), "extra_headers", name)
		r.Config = with(name, value)
		_, err := p.Generate(t.Context(), r)
		require.ErrorContains(t, err, "extra_headers", name)
	}
	require.ErrorContains(t, p.Check(&modelv1.GenerateConfig{Seed: new(int64(1 << 40))}), "config.seed")
	assert.Equal(t, "fine", chat.Completion(func() *modelv1.ModelOutput {
		response, err := p.Generate(t.Context(), question())
		require.NoError(t, err)
		return response.Output
	}()))
}
