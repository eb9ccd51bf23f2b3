package openai_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// openWith opens a model with a configuration.
func openWith(t testing.TB, c openai.Config, spec provider.Spec) (provider.Provider, error) {
	t.Helper()
	kind, closeIdle := openai.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	spec.Account = provider.DefaultAccount
	return kind.Open(spec)
}

func bedrockAt(address string) openai.Config {
	return openai.Config{APIKey: config.NewSecret("key-of-openai"), Bedrock: openai.BedrockConfig{BaseURL: address, BearerToken: config.NewSecret("bedrock-key-of-the-account")}}
}

func TestSuiteOnBedrock(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		p, err := openWith(t, bedrockAt(providertest.ResponsesServer(t, answers...)), provider.Spec{Model: "bedrock/gpt-5"})
		require.NoError(t, err)
		return p
	}})
}

// A server of tools that would not be called is not asked for either, when tokens are counted.
func TestServersOfToolsAreRefusedOnBedrockAlsoForACount(t *testing.T) {
	t.Parallel()
	p, err := openWith(t, bedrockAt("http://localhost:1/v1"), provider.Spec{Model: "bedrock/gpt-5"})
	require.NoError(t, err)
	server := &toolv1.ToolInfo{
		Name: "mcp_server_docs", OptionsJson: `{"name":"docs","type":"http","url":"https://mcp.example","tools":"all"}`,
	}
	_, err = p.(provider.TokenCounter).CountTokens(t.Context(), &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{server},
	})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%v", err)
}

// No option of a configuration is dropped silently.
func TestEveryOptionIsSentToBedrockOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gpt-5", "gpt-5.6", "gpt-oss-120b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider {
				p, err := openWith(t, bedrockAt(root), provider.Spec{Model: "bedrock/" + name})
				require.NoError(t, err)
				return p
			})
		})
	}
}

// seen is a server that records its last request, and answers with status 400.
func seen(t *testing.T) (address string, last func() (*http.Request, string)) {
	t.Helper()
	var got *http.Request
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			_, _ = io.WriteString(w, `{"access_token":"access-token-of-azure","expires_in":3600}`)
			return
		}
		raw, _ := io.ReadAll(r.Body)
		got, body = r, string(raw)
		w.WriteHeader(http.StatusBadRequest)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() (*http.Request, string) { return got, body }
}

// ask makes a call whose answer does not matter.
func ask(t *testing.T, p provider.Provider) {
	t.Helper()
	_, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
	failure, ok := provider.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, http.StatusBadRequest, failure.Status)
}

// Names get the vendor's prefix, and credentials of AWS make a key that AWS's own generator would make: a signed
// address of a call, encoded.
func TestARequestToBedrock(t *testing.T) {
	t.Parallel()
	address, last := seen(t)
	c := bedrockAt(address)
	c.Bedrock.BearerToken = config.Secret{}
	c.Bedrock.AccessKeyID, c.Bedrock.SecretAccessKey = config.NewSecret("AKIAIOSFODNN7EXAMPLE"), config.NewSecret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
	c.Bedrock.SessionToken = config.NewSecret("session-token-of-the-account")
	p, err := openWith(t, c, provider.Spec{Model: "bedrock/gpt-oss-120b", Args: `{"aws_region":"us-west-2"}`})
	require.NoError(t, err)
	ask(t, p)
	got, body := last()
	assert.Equal(t, "/chat/completions", got.URL.Path)
	assert.Contains(t, body, `"model":"openai.gpt-oss-120b"`)
	key, ok := strings.CutPrefix(got.Header.Get("Authorization"), "Bearer bedrock-api-key-")
	require.True(t, ok, got.Header.Get("Authorization"))
	decoded, err := base64.StdEncoding.DecodeString(key)
	require.NoError(t, err)
	signed, err := url.Parse("https://" + string(decoded))
	require.NoError(t, err)
	assert.Equal(t, "bedrock.amazonaws.com/", signed.Host+signed.Path)
	query := signed.Query()
	assert.Equal(t, []string{"CallWithBearerToken", "43200", "AWS4-HMAC-SHA256", "host", "1", "session-token-of-the-account"}, []string{
		query.Get("Action"), query.Get("X-Amz-Expires"), query.Get("X-Amz-Algorithm"), query.Get("X-Amz-SignedHeaders"), query.Get("Version"), query.Get("X-Amz-Security-Token"),
	})
	assert.Contains(t, query.Get("X-Amz-Credential"), "/us-west-2/bedrock/aws4_request")
	assert.Len(t, query.Get("X-Amz-Signature"), 64)
	assert.Equal(t, "bedrock/gpt-oss-120b", p.Capabilities().ConnectionKey)
}

// Servers of tools are called by OpenAI's own API alone.
func TestBedrockCallsNoServersOfTools(t *testing.T) {
	t.Parallel()
	p, err := openWith(t, bedrockAt("http://127.0.0.1:1"), provider.Spec{Model: "bedrock/gpt-5"})
	require.NoError(t, err)
	_, err = p.Generate(t.Context(), &provider.Request{Tools: []*toolv1.ToolInfo{{
		Name: "mcp_server_x", OptionsJson: `{"type":"mcp_server","name":"x","url":"http://x"}`,
	}}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%v", err)
}

// A deployment on Azure without a key has an access token of the account's identity, in both lanes.
func TestAnIdentityOnAzure(t *testing.T) {
	t.Parallel()
	address, last := seen(t)
	c := openai.Config{Azure: openai.AzureConfig{BaseURL: address, Identity: azureauth.Default{Endpoint: address + "/token"}}}
	for _, deployment := range []string{"azure/gpt-4o", "azure/gpt-5"} {
		p, err := openWith(t, c, provider.Spec{Model: deployment})
		require.NoError(t, err)
		ask(t, p)
		got, _ := last()
		assert.Equal(t, []string{"Bearer access-token-of-azure", ""}, []string{got.Header.Get("Authorization"), got.Header.Get("Api-Key")})
		post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("{}"))
		require.NoError(t, err)
		upstream := p.Capabilities().Upstreams[0]
		post.Header.Set("Authorization", "Bearer of-a-client")
		upstream.Authorize(post.Header)
		answer, err := upstream.HTTP.Do(post)
		require.NoError(t, err)
		_ = answer.Body.Close()
		got, _ = last()
		assert.Equal(t, "Bearer access-token-of-azure", got.Header.Get("Authorization"))
	}
}
