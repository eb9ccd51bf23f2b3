package modelgw

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/grok"
)

// RefuseOwn fails if an account's base URL leads to one of these addresses, host:port, at which the platform itself
// serves clients: calls of the account would return to it, with the wrong credential.
func (c *Config) RefuseOwn(addresses ...string) error {
	bases := c.baseURLs()
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(bases)) {
		for _, own := range addresses {
			if leadsTo(bases[name], own) {
				faults = append(faults, fmt.Errorf("%s is %s, which is evalfleet's own endpoint at %s: it is meant for programs that call evalfleet; unset it where evalfleet itself starts",
					name, redacted(bases[name]), own))
				break
			}
		}
	}
	return errors.Join(faults...)
}

// baseURLs are the base URLs of all accounts, by the names under which an operator sets them.
func (c *Config) baseURLs() map[string]string {
	all := map[string]string{
		"OPENAI_BASE_URL (modelgw.openai.base_url)":                     c.OpenAI.BaseURL,
		"ANTHROPIC_BASE_URL (modelgw.anthropic.base_url)":               c.Anthropic.BaseURL,
		"GOOGLE_BASE_URL (modelgw.google.base_url)":                     c.Google.BaseURL,
		"MISTRAL_BASE_URL (modelgw.mistral.base_url)":                   c.Mistral.BaseURL,
		"AZUREAI_MISTRAL_BASE_URL (modelgw.mistral.azure.base_url)":     c.Mistral.Azure.BaseURL,
		"AZURE_MISTRAL_BASE_URL (modelgw.mistral.azure.azure_base_url)": c.Mistral.Azure.AzureBaseURL,
		"XAI_BASE_URL (modelgw.grok.base_url)":                          grok.WithScheme(c.Grok.BaseURL),
		"GROK_BASE_URL (modelgw.grok.grok_base_url)":                    grok.WithScheme(c.Grok.GrokBaseURL),
		"BEDROCK_BASE_URL (modelgw.bedrock.base_url)":                   c.Bedrock.BaseURL,
		"modelgw.sagemaker.base_url":                                    c.SageMaker.BaseURL,
	}
	for name, url := range map[string]string{
		"AZUREAI_OPENAI_BASE_URL (modelgw.openai.azure.base_url)":           c.OpenAI.Azure.BaseURL,
		"AZURE_OPENAI_BASE_URL (modelgw.openai.azure.azure_base_url)":       c.OpenAI.Azure.AzureBaseURL,
		"AZURE_OPENAI_ENDPOINT (modelgw.openai.azure.endpoint)":             c.OpenAI.Azure.Endpoint,
		"AZUREAI_ANTHROPIC_BASE_URL (modelgw.anthropic.azure.base_url)":     c.Anthropic.Azure.BaseURL,
		"AZURE_ANTHROPIC_BASE_URL (modelgw.anthropic.azure.azure_base_url)": c.Anthropic.Azure.AzureBaseURL,
	} {
		all[name] = url
	}
	for name, account := range c.OpenAI.Azure.Accounts {
		all["modelgw.openai.azure.accounts."+name+".base_url"] = account.BaseURL
	}
	for name, account := range c.Anthropic.Azure.Accounts {
		all["modelgw.anthropic.azure.accounts."+name+".base_url"] = account.BaseURL
	}
	for name, account := range c.OpenAI.Accounts {
		all["modelgw.openai.accounts."+name+".base_url"] = account.BaseURL
	}
	for name, account := range c.Anthropic.Accounts {
		all["modelgw.anthropic.accounts."+name+".base_url"] = account.BaseURL
	}
	for name, account := range c.Google.Accounts {
		all["modelgw.google.accounts."+name+".base_url"] = account.BaseURL
	}
	for name, account := range c.Mistral.Accounts {
		all["modelgw.mistral.accounts."+name+".base_url"] = account.BaseURL
	}
	for name, account := range c.Grok.Accounts {
		all["modelgw.grok.accounts."+name+".base_url"] = grok.WithScheme(account.BaseURL)
	}
	for name, account := range c.Bedrock.Accounts {
		all["modelgw.bedrock.accounts."+name+".base_url"] = account.BaseURL
	}
	for name, account := range c.SageMaker.Accounts {
		all["modelgw.sagemaker.accounts."+name+".base_url"] = account.BaseURL
	}
	for name, account := range c.OpenAIAPI.Services {
		all["modelgw.openai_api.services."+name+".base_url"] = account.BaseURL
	}
	for name, address := range c.Services.BaseURLs() {
		all["modelgw.services."+name] = address
	}
	return all
}

// leadsTo reports whether a URL has the host and port of an address. All loopback hosts are equal. An address of all
// interfaces also equals loopback, each IP address of this machine, and its name. No name is resolved.
func leadsTo(base, address string) bool {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return false
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != portOf(u) {
		return false
	}
	to := plainName(u.Hostname())
	return plainName(host) == to || local(host) && local(to) || everyInterface(host) && ofThisMachine(to)
}

// plainName is a host's name as it is compared.
func plainName(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

func portOf(u *url.URL) string {
	if u.Port() != "" {
		return u.Port()
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

func local(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || everyInterface(host) || err == nil && ip.IsLoopback()
}

// everyInterface reports whether a listener at a host is reachable at every address of the machine.
func everyInterface(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// ofThisMachine reports whether a host is an IP address of an interface of this machine, or its name with or without
// its domain.
func ofThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		name, _ := os.Hostname() // Where it is not known, calls of the account fail later.
		short, _, _ := strings.Cut(plainName(name), ".")
		return host != "" && (host == plainName(name) || host == short)
	}
	interfaces, _ := net.InterfaceAddrs() // Where they are not known, calls of the account fail later.
	return slices.ContainsFunc(interfaces, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == ip.Unmap()
	})
}

// redacted is a URL without credentials and query.
func redacted(base string) string {
	u, _ := url.Parse(base) // It was parsed before.
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
