package bedrockaccess

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// Requests that name ever other regions do not make an account grow.
func TestTheRegionsOfRequestsAreBounded(t *testing.T) {
	t.Parallel()
	all := New(API{Provider: "p", Address: Runtime}, map[string]Account{"a": {}}, http.DefaultClient)
	for i := range 3 * maxRegions {
		access, err := all.Open(provider.Spec{Account: "a"}, fmt.Sprintf("us-east-%d", i))
		require.NoError(t, err)
		require.NotNil(t, access.BearerClient())
	}
	kept := 0
	for range all.named["a"].tokens.All() {
		kept++
	}
	assert.Equal(t, maxRegions, kept)
}

// The address of a model has the region of the account's profile before anything is asked: it decides which calls share
// an answer.
func TestTheRegionOfAProfileIsInTheAddress(t *testing.T) {
	opened := func(one Account) (*Access, error) {
		return New(API{Provider: "p", Address: Runtime}, map[string]Account{"a": one}, http.DefaultClient).Open(provider.Spec{Account: "a"}, "")
	}
	profile := awsauth.Account{Profile: "work"}
	for _, region := range []string{"eu-north-1", "us-west-2"} {
		providertest.AWSProfile(t, region)
		access, err := opened(Account{Account: profile})
		require.NoError(t, err)
		assert.Equal(t, region, access.Region())
		assert.Equal(t, Runtime(region), access.Server())

		providertest.AWSProfile(t, "ap-south-1") // The model keeps its address.
		to, err := access.Target(t.Context())
		require.NoError(t, err)
		assert.Equal(t, Runtime(region), to.Endpoint)
		assert.Equal(t, region, to.Region)
	}
	_, err := opened(Account{Account: awsauth.Account{Profile: "nowhere"}})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED), "%v", err)
	access, err := opened(Account{APIKey: config.NewSecret("key"), BaseURL: "http://own", Account: profile})
	require.NoError(t, err)
	assert.Equal(t, "http://own", access.Server(), "a key needs no region at an address")
}
