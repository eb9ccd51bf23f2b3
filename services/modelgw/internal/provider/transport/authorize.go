package transport

import (
	"net/http"
	"sync"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
)

// Authorize returns a client that shares the connections of c, sends the access token of an account with each request,
// and redacts it as RedactSecrets does. A token that is refused (401) is dropped, and the request is sent once more if
// there is another token. The failure to get a token is that of the request, and Broken returns it unchanged.
func Authorize(c *http.Client, tokens *accesstoken.Source) *http.Client {
	own := *c
	own.Transport = &authorizing{next: c.Transport, tokens: tokens}
	return &own
}

// authorizing is the transport of such a client.
type authorizing struct {
	next   http.RoundTripper
	tokens *accesstoken.Source

	mu sync.Mutex
	// last redacts the token that was sent last, and of is that token.
	last *redactingTransport
	of   config.Secret
}

// RoundTrip implements http.RoundTripper.
func (a *authorizing) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.tokens.Token(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	answer, err := a.send(r, token)
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, err
	}
	a.tokens.Forget(token.Value)
	again := r.Clone(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		if r.GetBody == nil {
			return answer, nil
		}
		if again.Body, err = r.GetBody(); err != nil {
			return answer, nil //nolint:nilerr // The refusal is the answer.
		}
	}
	newer, err := a.tokens.Token(r.Context())
	if err != nil || newer.Value == token.Value {
		if again.Body != nil {
			_ = again.Body.Close()
		}
		return answer, nil //nolint:nilerr // The refusal is the answer.
	}
	_ = answer.Body.Close()
	return a.send(again, newer)
}

// send sends a request with a token.
func (a *authorizing) send(r *http.Request, token accesstoken.Token) (*http.Response, error) {
	authorized := r.Clone(r.Context())
	authorized.Header.Set("Authorization", "Bearer "+token.Value.Reveal())
	for name, value := range token.Headers {
		authorized.Header.Set(name, value)
	}
	return a.redacting(token.Value).RoundTrip(authorized)
}

// redacting returns the transport that redacts a token.
func (a *authorizing) redacting(token config.Secret) *redactingTransport {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil || a.of != token {
		a.last, a.of = &redactingTransport{next: a.next, secrets: newSecretSet([]config.Secret{token})}, token
	}
	return a.last
}

// redactText implements redactor with the token that was sent last.
func (a *authorizing) redactText(text string) string {
	a.mu.Lock()
	last := a.last
	a.mu.Unlock()
	if last == nil {
		return text
	}
	return last.redactText(text)
}
