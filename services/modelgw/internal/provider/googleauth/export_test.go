package googleauth

import (
	"context"
	"net/http"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
)

// Fetch is one fetch of a token.
func Fetch(ctx context.Context, o Owner, account Account, client *http.Client) (accesstoken.Token, error) {
	return (&source{owner: o, account: account, http: client, scopes: []string{CloudPlatform}}).fetch(ctx)
}
