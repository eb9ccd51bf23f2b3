package provider

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// Key is one of several credentials of an account. Each has its own pool of connections.
type Key struct {
	// APIKey is the credential.
	APIKey config.Secret `yaml:"api_key"`
	// BaseURL is where the credential is valid, if not at the account's address. The API there must be the same.
	BaseURL string `yaml:"base_url"`
	// Weight is the share of conversations in relation to the account's other credentials; that of `api_key` is 1.
	// Default
	// 1.
	Weight *int `yaml:"weight"`
}

// maxWeight bounds a weight.
const maxWeight = 1000

// Check returns the fault of a key.
func (k Key) Check() error {
	switch {
	case k.APIKey.IsZero() && k.BaseURL == "":
		return errors.New("api_key is missing")
	case k.Weight != nil && (*k.Weight < 1 || *k.Weight > maxWeight):
		return fmt.Errorf("weight must be between 1 and %d; leave it out for 1", maxWeight)
	}
	return nil
}

// credential is one of the credentials of an account: number 0 is the account's own, n the n-th of its keys.
type credential struct {
	Key
	number int
	weight int
}

// credentials are the credentials of an account, of which there is at least one. Its own counts if it is set, or if
// there is no other.
func (a Account) credentials() []credential {
	var all []credential
	if !a.APIKey.IsZero() || len(a.Keys) == 0 {
		all = append(all, credential{Key: Key{APIKey: a.APIKey}, weight: 1})
	}
	for i, key := range a.Keys {
		weight := 1
		if key.Weight != nil {
			weight = *key.Weight
		}
		all = append(all, credential{Key: key, number: i + 1, weight: weight})
	}
	return all
}

// credentialsFor are the credentials for an address that a request asks for; empty is the account's own. One with an
// address of its own is sent nowhere else.
func (a Account) credentialsFor(asked, vendor string) ([]credential, error) {
	if asked == "" {
		return a.credentials(), nil
	}
	var usable []credential
	for _, c := range a.credentials() {
		if c.BaseURL == "" || strings.TrimRight(c.BaseURL, "/") == strings.TrimRight(asked, "/") {
			if _, err := a.with(c).Endpoint(asked, vendor); err == nil {
				usable = append(usable, c)
			}
		}
	}
	if len(usable) == 0 {
		return nil, notAllowed(asked)
	}
	return usable, nil
}

// with is the account as if it had one credential alone.
func (a Account) with(c credential) Account {
	a.APIKey, a.Keys = c.APIKey, nil
	if c.BaseURL != "" {
		a.BaseURL = c.BaseURL
	}
	return a
}

// selection selects one of the credentials of an account, by its place among those that are usable, and takes what is
// known of all.
type selection struct {
	at int
	// owner names the account, also where several kinds of a provider have accounts of the same name.
	owner string
	all   []credential
}

// choose returns the selected credential.
func (s *selection) choose(owner string, usable []credential) credential {
	if s == nil {
		return usable[0]
	}
	s.owner, s.all = owner, usable
	return usable[s.at]
}
