package auth

import (
	"context"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/connlimit"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Challenge is the WWW-Authenticate header of an answer with status 401 (RFC 6750, section 3).
const Challenge = "Bearer"

// Admit authenticates a request by its context and token, and marks its connection as authenticated. The returned
// context has the principal.
func Admit(ctx context.Context, a Authenticator, token string) (context.Context, error) {
	principal, err := a.Authenticate(ctx, token)
	if err != nil {
		connlimit.MarkCallerUnauthenticated(ctx)
		return ctx, err
	}
	connlimit.MarkCallerAuthenticated(ctx)
	return WithPrincipal(ctx, principal), nil
}

// Refuse prepares the answer to a request without an accepted credential. The request's body, if any, is left unread.
// The connection ends, so that a client has to connect again for another refusal.
func Refuse(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	w.Header().Set("WWW-Authenticate", Challenge)
}

// VendorToken is the token of a request, wherever vendors' clients send a key: in one of three headers, or in the
// address as the member `key` of the query.
func VendorToken(r *http.Request) string {
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if key := r.Header.Get(name); key != "" {
			return key
		}
	}
	if token := Bearer(r.Header.Get("Authorization")); token != "" || r.URL.RawQuery == "" {
		return token
	}
	return r.URL.Query().Get("key")
}

// Guard passes requests with a known bearer token to the handler, and answers others in the form of all errors of the
// API.
func Guard(a Authenticator, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := Admit(r.Context(), a, Bearer(r.Header.Get("Authorization")))
		if err == nil {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		Refuse(w)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write(rpcerr.JSON(rpcerr.ToStatus(err), http.StatusUnauthorized)) //nolint:gosec // JSON, in which &, < and > are escaped.
	})
}
