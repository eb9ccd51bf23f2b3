// Package check finds out whether models can be called with the credentials of accounts, without a call that costs: is
// there a key, can the address be reached, does the vendor's list of models answer to the key, and is the model in it.
package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/proxy"
)

const (
	// dialTimeout and listTimeout bound one question each, and timeout all.
	dialTimeout, listTimeout, timeout = 5 * time.Second, 10 * time.Second, 25 * time.Second
	// atOnce bounds the credentials that are checked at once.
	atOnce = 8
	// maxListBytes bounds a list of models.
	maxListBytes = 8 << 20
	// unnamed is the model of a question about accounts, where a provider lists none.
	unnamed = "model"
)

// Steps of a check.
const (
	stepKey, stepAddress, stepList, stepModel = "key", "address", "list", "model"
)

const (
	proven   = modelv1.AccountCheckResult_ACCOUNT_CHECK_RESULT_PROVEN
	unproven = modelv1.AccountCheckResult_ACCOUNT_CHECK_RESULT_UNPROVEN
	failed   = modelv1.AccountCheckResult_ACCOUNT_CHECK_RESULT_FAILED
)

// Accounts checks the credentials that a request selects. It fails for names that are unknown; what a check finds is no
// error.
func Accounts(ctx context.Context, registry *provider.Registry, r *modelv1.CheckAccountsRequest) ([]*modelv1.AccountCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	asked, err := questions(registry, r)
	if err != nil {
		return nil, err
	}
	var all []*modelv1.AccountCheck
	var works sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, q := range asked {
		for _, c := range q.credentials(registry) {
			all = append(all, c.result)
			if c.model == nil {
				continue
			}
			works.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				c.run(ctx)
			})
		}
	}
	works.Wait()
	return all, nil
}

// question is an account, and the model that is asked about; empty is none.
type question struct {
	kind    provider.Kind
	account *modelv1.Account
	model   string
}

// questions are the accounts that a request selects.
func questions(registry *provider.Registry, r *modelv1.CheckAccountsRequest) ([]question, error) {
	wanted, model := r.GetProvider(), ""
	if r.GetModel() != "" {
		kind, name, err := provider.SplitName(r.GetModel())
		if err != nil {
			return nil, err
		}
		if wanted != "" && wanted != kind {
			return nil, rpcerr.InvalidField("provider", "%q is not the provider of the model %s", wanted, r.GetModel())
		}
		wanted, model = kind, name
	}
	var all []question
	var names []string
	known := wanted == ""
	for _, kind := range registry.Kinds() {
		names = append(names, kind.Name)
		if wanted != "" && kind.Name != wanted {
			continue
		}
		known = true
		if wanted != "" && len(kind.Accounts) == 0 { // It needs none.
			all = append(all, question{kind, &modelv1.Account{Name: provider.DefaultAccount, Usable: true, Keyless: true}, model})
		}
		for _, account := range accountsOf(kind, model) {
			switch {
			case r.GetAccount() != "" && account.GetName() != r.GetAccount():
			case wanted == "" && account.GetName() == provider.DefaultAccount && unset(kind, account):
			case kind.AccountInModel && model != "" && !strings.HasPrefix(model, account.GetName()+"/"):
			default:
				all = append(all, question{kind, account, model})
			}
		}
	}
	if !known {
		return nil, rpcerr.ModelNotFound(cmp.Or(r.GetModel(), wanted+"/"), names, "unknown provider %q; known: %s", wanted, strings.Join(names, ", "))
	}
	return all, nil
}

// accountsOf are the accounts of a model: those of the cloud that its name has, or the provider's own.
func accountsOf(kind provider.Kind, model string) []*modelv1.Account {
	service, _, _ := strings.Cut(model, "/")
	inCloud := slices.DeleteFunc(slices.Clone(kind.Clouds), func(a *modelv1.Account) bool { return a.GetService() != service })
	if len(inCloud) > 0 {
		return inCloud
	}
	return kind.Accounts
}

// unset reports whether a default account is as if nothing had been configured: without a key, or, of servers that need
// none, at the address at which they are by default.
func unset(kind provider.Kind, account *modelv1.Account) bool {
	return !account.GetUsable() || account.GetKeyless() && kind.Vendor != "" && account.GetBaseUrl() == provider.ShownURL(kind.Vendor)
}

// credential is a credential that is checked. Model is nil if it is known to be of no use.
type credential struct {
	model   *provider.Model
	asked   bool
	keyless bool
	result  *modelv1.AccountCheck
}

// credentials are those of an account.
func (q question) credentials(registry *provider.Registry) []credential {
	ref := provider.Ref{Project: "default", Model: q.kind.Name + "/" + q.model, Account: q.account.GetName()}
	if q.model == "" {
		name := unnamed
		if len(q.kind.Models) > 0 {
			name = q.kind.Models[0]
		}
		if q.kind.AccountInModel {
			name = q.account.GetName() + "/" + unnamed
		}
		ref.Model = q.kind.Name + "/" + name
	}
	if q.kind.AccountInModel {
		ref.Account = ""
	}
	base := modelv1.AccountCheck{Provider: q.kind.Name, Account: q.account.GetName(), BaseUrl: q.account.GetBaseUrl()}
	models, err := registry.All(ref)
	if err != nil {
		c := credential{result: &base}
		result := unproven
		if q.model != "" || rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED) {
			result = failed
		}
		c.add(stepKey, result, "%v", err)
		return []credential{c}
	}
	var all []credential
	for _, m := range models {
		c := credential{model: m, asked: q.model != "", keyless: q.account.GetKeyless(), result: &modelv1.AccountCheck{
			Provider: base.GetProvider(), Account: base.GetAccount(), BaseUrl: base.GetBaseUrl(), Key: int32(m.Key),
		}}
		if server := m.Constant().Server; m.HasKeys() && server != "" { // A key may have an address of its own.
			c.result.BaseUrl = provider.ShownURL(server)
		}
		switch {
		case q.account.GetKeyless():
			c.add(stepKey, proven, "none is needed")
		case q.account.GetKeys() == 0:
			c.add(stepKey, unproven, "the cloud gives the credentials, if it has any: a call alone would prove that")
		default:
			c.add(stepKey, proven, "it is set")
		}
		all = append(all, c)
	}
	return all
}

// add adds a step.
func (c *credential) add(name string, result modelv1.AccountCheckResult, format string, args ...any) {
	c.result.Steps = append(c.result.Steps, &modelv1.AccountCheckStep{Name: name, Result: result, Detail: fmt.Sprintf(format, args...)})
	c.result.Failed = c.result.Failed || result == failed
}

// run asks over the network.
func (c *credential) run(ctx context.Context) {
	var listing provider.Listing
	lists := false
	if lister, ok := c.model.Provider.(provider.Lister); ok {
		if listing, lists = lister.Listing(); lists {
			c.result.BaseUrl = provider.ShownURL(strings.TrimSuffix(listing.URL, "/models"))
		}
	}
	address := c.result.GetBaseUrl()
	if lists {
		address = listing.URL
	}
	if address == "" {
		return
	}
	if !c.reach(ctx, address, !lists) {
		return
	}
	if !lists {
		c.add(stepList, unproven, "evalfleet knows no list of models there: a call alone would prove the key")
		return
	}
	c.list(ctx, listing)
}

// reach connects to an address. Secured makes it prove TLS too, which a request does otherwise.
func (c *credential) reach(ctx context.Context, address string, secured bool) bool {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		c.add(stepAddress, failed, "%s is no address", provider.ShownURL(address))
		return false
	}
	if by, err := proxy.FromEnvironment()(&http.Request{URL: u}); err != nil {
		c.add(stepAddress, failed, "%v", err)
		return false
	} else if by != nil {
		c.add(stepAddress, unproven, "%s is reached through the proxy %s", u.Host, by.Host)
		return true
	}
	host := net.JoinHostPort(u.Hostname(), provider.Port(u))
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var conn net.Conn
	if plain := (&net.Dialer{}); secured && u.Scheme == "https" {
		conn, err = (&tls.Dialer{NetDialer: plain}).DialContext(ctx, "tcp", host)
	} else {
		conn, err = plain.DialContext(ctx, "tcp", host)
	}
	if err != nil {
		c.add(stepAddress, failed, "%s cannot be reached: %s", host, reason(err))
		return false
	}
	_ = conn.Close()
	c.add(stepAddress, proven, "%s accepts connections", host)
	return true
}

// reason is why a connection failed, for people.
func reason(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "its name does not resolve (" + dns.Err + ")"
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // It names the whole address.
	}
	return err.Error()
}

// list asks for the list of models.
func (c *credential) list(ctx context.Context, l provider.Listing) {
	status, body, err := get(ctx, l, l.URL)
	switch {
	case err != nil:
		c.add(stepList, failed, "the list of models does not answer: %s", reason(err))
		return
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		c.add(stepList, failed, "the key is refused (status %d)", status)
		return
	case status/100 == 3:
		c.add(stepList, failed, "the server redirects (status %d); let base_url name where the API is", status)
		return
	case status == http.StatusTooManyRequests || status >= 500:
		c.add(stepList, unproven, "the list of models is not to be had now (status %d); check again later", status)
		return
	case status != http.StatusOK:
		c.add(stepList, unproven, "the server has no list of models for it (status %d): a call alone would prove the key", status)
		return
	}
	names, ok := namesIn(body)
	if !ok {
		c.add(stepList, unproven, "the answer is no list of models that evalfleet can read: a call alone would prove the key")
		return
	}
	if !c.keyless && open(ctx, l) {
		c.add(stepList, unproven, "it answers without the key too, with %d models: a call alone would prove the key", len(names))
	} else {
		c.add(stepList, proven, "it answers to the key, with %d models", len(names))
	}
	if c.asked {
		c.find(ctx, l, names)
	}
}

// credentialHeaders have keys and tokens.
var credentialHeaders = []string{"Authorization", "Api-Key", "X-Api-Key", "X-Goog-Api-Key"}

// open reports whether a list that answers to a key does so without it too.
func open(ctx context.Context, l provider.Listing) bool {
	keyed, authorize := false, l.Authorize
	l.Authorize = func(h http.Header) {
		authorize(h)
		for _, name := range credentialHeaders {
			keyed = keyed || h.Get(name) != ""
			h.Del(name)
		}
	}
	status, _, err := get(ctx, l, l.URL)
	return keyed && err == nil && status == http.StatusOK
}

// find looks for the model in the list, and else asks for it by its name: lists lack aliases.
func (c *credential) find(ctx context.Context, l provider.Listing, names []string) {
	switch {
	case l.Model == "":
		c.add(stepModel, unproven, "the list does not have the names by which models are called here")
		return
	case slices.Contains(names, l.Model):
		c.add(stepModel, proven, "%s is listed", l.Model)
		return
	}
	status, _, err := get(ctx, l, l.URL+"/"+url.PathEscape(l.Model))
	switch {
	case err == nil && status == http.StatusOK:
		c.add(stepModel, proven, "%s is known by this name", l.Model)
	case err == nil && status == http.StatusNotFound:
		message := l.Model + " is not listed"
		if question := suggest.Question(l.Model, names); question != "" {
			message += "; " + strings.TrimSpace(question)
		}
		c.add(stepModel, failed, "%s", message)
	default:
		c.add(stepModel, unproven, "%s is not listed, and the server does not say more", l.Model)
	}
}

// get asks once.
func get(ctx context.Context, l provider.Listing, address string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if l.Query != "" {
		address += "?" + l.Query
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, err
	}
	l.Authorize(r.Header)
	answer, err := l.HTTP.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, maxListBytes))
	return answer.StatusCode, body, err
}

// namesIn are the names in a list of models: OpenAI's and Anthropic's `data`, Google's `models`, or a list alone.
func namesIn(body []byte) (names []string, ok bool) {
	type entry struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	var list struct {
		Data   []entry `json:"data"`
		Models []entry `json:"models"`
	}
	var alone []entry
	if json.Unmarshal(body, &alone) != nil {
		if json.Unmarshal(body, &list) != nil || list.Data == nil && list.Models == nil {
			return nil, false
		}
		alone = slices.Concat(list.Data, list.Models)
	}
	for _, e := range alone {
		if name := strings.TrimPrefix(cmp.Or(e.ID, e.Name), "models/"); name != "" {
			names = append(names, name)
		}
	}
	return names, true
}
