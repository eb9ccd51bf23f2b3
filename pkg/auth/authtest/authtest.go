// Package authtest authenticates tests without a token.
package authtest

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/auth"
)

// Allow is an Authenticator that accepts every caller as the given principal.
type Allow auth.Principal

// Authenticate returns the principal.
func (a Allow) Authenticate(context.Context, string) (auth.Principal, error) {
	return auth.Principal(a), nil
}
