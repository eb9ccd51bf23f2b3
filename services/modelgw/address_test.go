package modelgw_test

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

func TestABaseURLThatLeadsBackIsRefused(t *testing.T) {
	t.Parallel()
	for base, own := range map[string]string{
		"http://127.0.0.1:7460/v1":                 "127.0.0.1:7460",
		"http://localhost:7460/v1":                 "127.0.0.1:7460",
		"http://[::1]:7460":                        "0.0.0.0:7460",
		"http://evals.example.com/v1":              "evals.example.com:80",
		"http://ada:pass-word@127.0.0.1:7460/v1?x": "127.0.0.1:7460",
	} {
		c := modelgw.Config{}
		c.OpenAI.BaseURL = base
		err := c.RefuseOwn("127.0.0.1:1", own)
		require.ErrorContains(t, err, "OPENAI_BASE_URL", base)
		assert.ErrorContains(t, err, "evalfleet's own endpoint at "+own)
		assert.NotContains(t, err.Error(), "pass-word")
	}
	for base, own := range map[string]string{
		"":                         "127.0.0.1:7460",
		"http://127.0.0.1:8000/v1": "127.0.0.1:7460",
		"http://10.0.0.7:7460/v1":  "127.0.0.1:7460",
		"https://api.openai.com":   "127.0.0.1:443",
	} {
		c := modelgw.Config{}
		c.Anthropic.BaseURL = base
		require.NoError(t, c.RefuseOwn(own), base)
	}
}

// An address that requests may name leads back too, wherever the configuration has it.
func TestAnAllowedBaseURLThatLeadsBackIsRefused(t *testing.T) {
	t.Parallel()
	for says, document := range map[string]string{
		"modelgw.openai.allowed_base_urls[1]":                     `openai: {allowed_base_urls: ["https://a.example", "http://localhost:7460/v1"]}`,
		"modelgw.mistral.azure.allowed_base_urls[0]":              `mistral: {azure: {allowed_base_urls: ["http://127.0.0.1:7460"]}}`,
		"modelgw.grok.allowed_base_urls[0]":                       `grok: {allowed_base_urls: ["localhost:7460"]}`,
		"modelgw.openai_api.services.own.allowed_base_urls[0]":    `openai_api: {services: {own: {allowed_base_urls: ["http://127.0.0.1:7460"]}}}`,
		"modelgw.services.vllm.accounts.two.allowed_base_urls[0]": `services: {vllm: {accounts: {two: {allowed_base_urls: ["http://127.0.0.1:7460"]}}}}`,
		"modelgw.anthropic.accounts.other.allowed_base_urls[0]":   `anthropic: {accounts: {other: {allowed_base_urls: ["http://127.0.0.1:7460/"]}}}`,
		"modelgw.bedrock.accounts.elsewhere.allowed_base_urls[0]": `bedrock: {accounts: {elsewhere: {allowed_base_urls: ["http://[::1]:7460"]}}}`,
		"modelgw.google.vertex.allowed_base_urls[0]":              `google: {vertex: {allowed_base_urls: ["http://127.0.0.1:7460"]}}`,
	} {
		var c modelgw.Config
		require.NoError(t, yaml.Unmarshal([]byte(document), &c), document)
		require.ErrorContains(t, c.RefuseOwn("127.0.0.1:7460"), says)
		require.NoError(t, c.RefuseOwn("127.0.0.1:7461"), document)
	}
}

func TestABaseURLNamesAHost(t *testing.T) {
	t.Parallel()
	for _, base := range []string{
		"notaurl", "api.example.com/v1", "api.example.com:8000", "ftp://api.example.com", "https:///v1", "http://ada:pass-word@[::1",
		"//x:pass-word@api.example.com", "https://api.example.com/v1?key=pass-word", "https://api.example.com/v1#part",
	} {
		var c modelgw.Config
		c.SetDefaults()
		c.OpenAI.BaseURL = base
		err := c.Validate()
		require.ErrorContains(t, err, "OPENAI_BASE_URL (modelgw.openai.base_url): ", base)
		assert.NotContains(t, err.Error(), "pass-word")
	}
	for _, base := range []string{"", "http://127.0.0.1:8000", "https://api.example.com/v1", "http://[::1]:8000/v1"} {
		var c modelgw.Config
		c.SetDefaults()
		c.Anthropic.BaseURL = base
		require.NoError(t, c.Validate(), base)
	}
}

// The address of xAI's API, which its clients write without a scheme, is held to the same.
func TestAnAddressWithoutASchemeNamesAHost(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"ftp://api.example.com", "https:///v1", "//x:pass-word@[::1", "ada:pass-word@", "/"} {
		var c modelgw.Config
		c.SetDefaults()
		c.Grok.BaseURL = base
		err := c.Validate()
		require.ErrorContains(t, err, "XAI_BASE_URL (modelgw.grok.base_url): ", base)
		assert.NotContains(t, err.Error(), "pass-word")
	}
	for _, base := range []string{"", "api.x.ai", "api.x.ai:443", "http://127.0.0.1:8000", "[::1]:8000"} {
		var c modelgw.Config
		c.SetDefaults()
		c.Grok.GrokBaseURL = base
		require.NoError(t, c.Validate(), base)
	}
	c := modelgw.Config{}
	c.Grok.BaseURL = "localhost:7460"
	require.ErrorContains(t, c.RefuseOwn("127.0.0.1:7460"), "XAI_BASE_URL")
}

// The machine's name leads back too: as it is, without its domain, and however it is written.
func TestTheNameOfThisMachineLeadsBackFromEveryInterface(t *testing.T) {
	t.Parallel()
	name, err := os.Hostname()
	require.NoError(t, err)
	short, _, _ := strings.Cut(name, ".")
	for _, host := range []string{name, short, strings.ToUpper(name), name + "."} {
		c := modelgw.Config{}
		c.OpenAI.BaseURL = "http://" + host + ":7460/v1"
		require.ErrorContains(t, c.RefuseOwn("0.0.0.0:7460"), "evalfleet's own endpoint at 0.0.0.0:7460", c.OpenAI.BaseURL)
		require.NoError(t, c.RefuseOwn("0.0.0.0:7461"), c.OpenAI.BaseURL)
		require.NoError(t, c.RefuseOwn("192.0.2.1:7460"), c.OpenAI.BaseURL)
	}
	c := modelgw.Config{}
	c.OpenAI.BaseURL = "http://" + short + "x.example:7460/v1"
	require.NoError(t, c.RefuseOwn("0.0.0.0:7460"))
}

// A server that listens on every interface is reached at each IP address of its machine.
func TestAnAddressOfThisMachineLeadsBackFromEveryInterface(t *testing.T) {
	t.Parallel()
	interfaces, err := net.InterfaceAddrs()
	require.NoError(t, err)
	require.NotEmpty(t, interfaces, "a machine has its loopback interface at least")
	for _, a := range interfaces {
		prefix, err := netip.ParsePrefix(a.String())
		require.NoError(t, err)
		c := modelgw.Config{}
		c.OpenAI.BaseURL = "http://" + netip.AddrPortFrom(prefix.Addr(), 7460).String() + "/v1"
		for _, own := range []string{"0.0.0.0:7460", "[::]:7460", ":7460"} {
			require.ErrorContains(t, c.RefuseOwn(own), "evalfleet's own endpoint at "+own, c.OpenAI.BaseURL)
		}
		require.NoError(t, c.RefuseOwn("0.0.0.0:7461"))
		if !prefix.Addr().IsLoopback() {
			require.NoError(t, c.RefuseOwn("127.0.0.1:7460"), c.OpenAI.BaseURL)
		}
	}
	c := modelgw.Config{}
	c.OpenAI.BaseURL = "http://192.0.2.1:7460/v1" // An address of documentation, which no machine has (RFC 5737).
	require.NoError(t, c.RefuseOwn("0.0.0.0:7460"))
}

// An account that is named like the default one would be passed over in silence.
func TestTheDefaultAccountIsConfiguredOnce(t *testing.T) {
	t.Parallel()
	for document, key := range map[string]string{
		`openai: {accounts: {default: {}}}`: "openai.accounts", `anthropic: {azure: {accounts: {default: {}}}}`: "anthropic.azure.accounts",
		`bedrock: {accounts: {default: {}}}`: "bedrock.accounts", `services: {groq: {accounts: {default: {}, team: {}}}}`: "services.groq.accounts",
	} {
		var c modelgw.Config
		require.NoError(t, config.Decode(&c, []byte(document)))
		c.SetDefaults()
		require.EqualError(t, c.Validate(), key+".default: the account default is configured beside accounts, not among them", document)
	}
}
