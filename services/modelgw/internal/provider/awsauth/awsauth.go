// Package awsauth is access to Amazon Web Services for providers: the credentials of an account, from its configuration
// or from AWS's default chain (environment, shared files, SSO, web identity, roles of containers and instances),
// clients that sign requests with them, and what the types of AWS's errors mean.
//
// A Source fetches nothing before the first request. Credentials are in no error, and a client redacts them in what
// AWS answers.
package awsauth

import (
	"cmp"
	"errors"
	"regexp"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// Account is access to AWS as it is configured. Without keys it is AWS's default chain.
type Account struct {
	// AccessKeyID is the id of an access key, which has precedence over a profile and the default chain.
	AccessKeyID config.Secret `yaml:"access_key_id"`
	// SecretAccessKey is the secret of the access key.
	SecretAccessKey config.Secret `yaml:"secret_access_key"`
	// SessionToken belongs to an access key that is temporary.
	SessionToken config.Secret `yaml:"session_token"`
	// Profile is the profile in the shared configuration of AWS, with SSO if it has that.
	Profile string `yaml:"profile"`
	// RoleARN is a role to assume with these credentials.
	RoleARN string `yaml:"role_arn"`
	// ExternalID is what the role's owner asks for.
	ExternalID string `yaml:"external_id"`
	// Region is the region of AWS; empty is that of the profile.
	Region string `yaml:"region"`
}

// Default is the account `default`, which has the variables of AWS's own programs.
type Default struct {
	// AccessKeyID is the id of the access key of the account `default`; without one, AWS's default chain gives
	// credentials.
	AccessKeyID config.Secret `yaml:"access_key_id" env:"AWS_ACCESS_KEY_ID"`
	// SecretAccessKey is the secret of the access key.
	SecretAccessKey config.Secret `yaml:"secret_access_key" env:"AWS_SECRET_ACCESS_KEY"`
	// SessionToken belongs to an access key that is temporary.
	SessionToken config.Secret `yaml:"session_token" env:"AWS_SESSION_TOKEN"`
	// Profile is the profile in the shared configuration of AWS, if there is no access key.
	Profile string `yaml:"profile" env:"AWS_PROFILE"`
	// RoleARN is a role to assume with these credentials.
	RoleARN string `yaml:"role_arn"`
	// ExternalID is what the role's owner asks for.
	ExternalID string `yaml:"external_id"`
	// Region is the region of AWS; empty is that of `default_region`, then that of the profile.
	Region string `yaml:"region" env:"AWS_REGION"`
	// DefaultRegion is used if `region` is not set: programs of AWS know both variables.
	DefaultRegion string `yaml:"default_region" env:"AWS_DEFAULT_REGION"`
}

// Account returns the account.
func (d *Default) Account() Account {
	return Account{
		AccessKeyID: d.AccessKeyID, SecretAccessKey: d.SecretAccessKey, SessionToken: d.SessionToken, Profile: d.Profile, RoleARN: d.RoleARN, ExternalID: d.ExternalID,
		Region: cmp.Or(d.Region, d.DefaultRegion),
	}
}

// HasKey reports whether the account has an access key.
func (a *Account) HasKey() bool { return !a.AccessKeyID.IsZero() && !a.SecretAccessKey.IsZero() }

var (
	errHalfKey = errors.New("access_key_id and secret_access_key belong together; set both")
	errRegion  = errors.New("region must be a name such as us-east-1")
)

var regionName = regexp.MustCompile(`^[a-z]{2,}(-[a-z0-9]+)+$`)

// CheckRegion fails on a text that is no name of a region, which becomes a part of addresses. Empty is fine.
func CheckRegion(region string) error {
	if region != "" && !regionName.MatchString(region) {
		return errRegion
	}
	return nil
}

// Check fails on an account that cannot be meant so.
func (a *Account) Check() error {
	if a.AccessKeyID.IsZero() != a.SecretAccessKey.IsZero() {
		return errHalfKey
	}
	return CheckRegion(a.Region)
}
