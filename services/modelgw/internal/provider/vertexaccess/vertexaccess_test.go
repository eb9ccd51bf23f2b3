package vertexaccess_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/vertexaccess"
)

// Google has an address for each location: https://cloud.google.com/vertex-ai/docs/general/googleapi-access-methods.
func TestHost(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		"us-east5": "https://us-east5-aiplatform.googleapis.com", "global": "https://aiplatform.googleapis.com", "": "https://aiplatform.googleapis.com",
		"eu": "https://aiplatform.eu.rep.googleapis.com", "us": "https://aiplatform.us.rep.googleapis.com",
	} {
		assert.Equal(t, want, vertexaccess.Host(location), location)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	accounts := vertexaccess.New(vertexaccess.API{Provider: "p", Version: "/v1", Hint: "the hint"}, map[string]vertexaccess.Account{
		"whole": {Project: "example.com:p", Location: "eu"}, "express": {}, "empty": {}, "odd": {Project: "../p", Location: "eu"},
	}, map[string]config.Secret{"express": config.NewSecret("the-key-of-express-mode")}, http.DefaultClient)
	access, err := accounts.Open(provider.Spec{Account: "whole"}, "", "")
	require.NoError(t, err)
	assert.Equal(t, []string{"https://aiplatform.eu.rep.googleapis.com/v1", "/projects/example.com:p/locations/eu"}, []string{access.Endpoint, access.Parent})
	_, err = accounts.Open(provider.Spec{Account: "express"}, "", "global")
	require.ErrorContains(t, err, "leave them out", "what was asked for is not passed over without a word")
	access, err = accounts.Open(provider.Spec{Account: "express"}, "", "")
	require.NoError(t, err)
	assert.Equal(t, []string{"https://aiplatform.googleapis.com/v1", "", "the-key-of-express-mode"}, []string{access.Endpoint, access.Parent, access.Key.Reveal()})
	for account, says := range map[string]string{"empty": "the hint", "odd": "project must be", "other": "configured: empty, express, odd, whole"} {
		_, err := accounts.Open(provider.Spec{Account: account}, "", "")
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, vertexaccess.Check(map[string]vertexaccess.Account{"a": {Project: "p", Location: "us-east5"}}))
	require.ErrorContains(t, vertexaccess.Check(map[string]vertexaccess.Account{"a": {Location: "US"}}), "accounts.a: location must be")
}
