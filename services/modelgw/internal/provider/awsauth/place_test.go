package awsauth_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
)

// Regions of AWS in China and of its European cloud have addresses of their own.
func TestARegionHasADomain(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{
		"us-east-1": "us-east-1.amazonaws.com", "us-gov-west-1": "us-gov-west-1.amazonaws.com", "cn-north-1": "cn-north-1.amazonaws.com.cn", "eusc-de-east-1": "eusc-de-east-1.amazonaws.eu",
	} {
		assert.Equal(t, want, awsauth.Domain(region))
	}
}
