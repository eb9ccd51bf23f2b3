package auth

import (
	"encoding/json"
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Guard lets through who is known, by the bearer token, and answers others in the form of all errors of the API.
func Guard(a Authenticator, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal, err := a.Authenticate(r.Context(), Bearer(r.Header.Get("Authorization")))
		if err == nil {
			next.ServeHTTP(w, r.WithContext(WithPrincipal(r.Context(), principal)))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": codes.Unauthenticated, "message": rpcerr.ToStatus(err).Message()})
	})
}
