package provider_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// What is allowed is an address and plain paths below it: nothing that a server could read as a path elsewhere.
func TestAnAllowedBaseURLHasPlainPathsBelowIt(t *testing.T) {
	t.Parallel()
	account := provider.Account{AllowedBaseURLs: []string{"https://api.example/team-b", "https://api.example/exact%20one?x=1"}}
	for asked, allowed := range map[string]bool{
		"https://api.example/team-b": true, "https://api.example/team-b/": true, "https://api.example/team-b/v1": true, "https://api.example/team-b/v1/models:x@y~z-1_2.3": true,
		"https://api.example/exact%20one?x=1": true, "": true,
		"https://api.example/team-b/../admin": false, "https://api.example/team-b/%2e%2e/admin": false, "https://api.example/team-b/%2E./admin": false,
		"https://api.example/team-b/.%2e/admin": false, "https://api.example/team-b/x%2f..%2f..%2fadmin": false, "https://api.example/team-b/%252e%252e/admin": false,
		`https://api.example/team-b/\..\admin`: false, `https://api.example/team-b\..\admin`: false, "https://api.example/team-b/..;/admin": false, "https://api.example/team-b/./v1": false,
		"https://api.example/team-b/v1?x=/": false, "https://api.example/team-b/v1#x": false, "https://api.example/team-b//admin": false, "https://api.example/team-bad": false,
		"https://api.example/team-b/\u2024\u2024/admin": false, "https://api.example/team-b/\t../admin": false, "https://evil.example/team-b": false,
	} {
		got, err := account.Endpoint(asked, "https://vendor.example")
		assert.Equal(t, allowed, err == nil, "%q: %v %v", asked, got, err)
	}
}

func TestAPasswordInABaseURLIsNotShown(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://user:hunter2@proxy.example/v1/": "https://user:xxxxx@proxy.example/v1",
		"https://proxy.example/v1?key=hunter2":   "https://proxy.example/v1?xxxxx",
		"http://user:hunter2@[broken":            "xxxxx",
		"https://plain.example/v1":               "https://plain.example/v1",
		"":                                       "https://vendor.example",
	} {
		accounts := provider.Accounts{Named: map[string]provider.Account{"default": {BaseURL: url}}, Vendor: "https://vendor.example", KeyHint: func(string) string { return "" }}
		all := accounts.Usable()
		assert.Equal(t, want, all[0].GetBaseUrl(), url)
	}
}
