// Package accesstoken caches the access token of an account that has an identity in place of a key. A token is fetched
// when it is first needed and again before it expires, once for all callers that wait for it. How to fetch one is left
// to others (googleauth, azureauth, bedrockaccess); transport.Authorize sends it.
package accesstoken

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
)

const (
	// spare is the remaining life with which a token is no longer sent: a request must arrive before its end.
	spare = 30 * time.Second
	// early is the remaining life with which a new token is fetched while the old one is still sent.
	early = 5 * time.Minute
	// fetchTimeout bounds one fetch, also if no caller waits for it any more.
	fetchTimeout = 30 * time.Second
	// pause is the least time between two fetches ahead of the end. Some sources return the same token until shortly
	// before its end.
	pause = 30 * time.Second
)

// Token is an access token.
type Token struct {
	// Value is sent as a bearer token.
	Value config.Secret
	// Expires is when it ends; zero is never.
	Expires time.Time
	// Headers are sent with it: what the account's credentials say of its requests. They must not be changed.
	Headers map[string]string
}

// lives reports whether the token has more than a remaining life.
func (t *Token) lives(remaining time.Duration) bool {
	return !t.Value.IsZero() && (t.Expires.IsZero() || time.Until(t.Expires) > remaining)
}

// Fetch fetches a token. It must end with its context, since all callers wait for it. Its errors are those of a
// provider's attempt and hold no secret.
type Fetch func(ctx context.Context) (Token, error)

// Source gives the token of one account. It is safe for concurrent use.
type Source struct {
	fetch Fetch

	mu    sync.Mutex
	token Token
	// running is the fetch that is under way; nil if there is none.
	running *fetching
	// next is the earliest time of a fetch ahead of the end.
	next time.Time
}

// fetching is one fetch. Its result may be read once done is closed.
type fetching struct {
	done  chan struct{}
	token Token
	err   error
}

// New returns a source. Nothing is fetched before the first call of Token.
func New(fetch Fetch) *Source { return &Source{fetch: fetch} }

// Token returns a token that can be sent now. It fails with the error of the fetch, which is not kept: the next call
// fetches again. A context that ends ends the wait, and not the fetch, for which others may wait.
func (s *Source) Token(ctx context.Context) (Token, error) {
	s.mu.Lock()
	if s.token.lives(spare) {
		defer s.mu.Unlock()
		if !s.token.lives(early) && s.running == nil && time.Now().After(s.next) {
			s.begin(ctx)
		}
		return s.token, nil
	}
	if s.running == nil {
		s.begin(ctx)
	}
	run := s.running
	s.mu.Unlock()
	select {
	case <-run.done:
		return run.token, run.err
	case <-ctx.Done():
		return Token{}, ctx.Err()
	}
}

// begin begins a fetch. The caller holds mu.
func (s *Source) begin(ctx context.Context) {
	run := &fetching{done: make(chan struct{})}
	s.running, s.next = run, time.Now().Add(pause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	go func() {
		defer cancel()
		run.token, run.err = s.fetch(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = nil
		if run.err == nil {
			s.token = run.token
		}
		close(run.done)
	}()
}

// Forget drops a token that was refused, unless there is another one by now.
func (s *Source) Forget(refused config.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token.Value == refused {
		s.token = Token{}
	}
}

// plainCode matches the codes of errors (RFC 6749, 5.2).
var plainCode = regexp.MustCompile(`^[a-z_]{1,60}$`)

// ErrorCode returns the code of an error that a server gave in place of a token; empty for any other text, which may
// hold secrets.
func ErrorCode(said string) string { return plainCode.FindString(said) }
