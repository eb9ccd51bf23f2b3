package awsauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/proxy"
)

// Source gives the credentials of one account, fetches them when they are first needed, and again before they expire.
// It is safe for concurrent use.
type Source struct {
	owner   Owner
	account Account
	http    *http.Client
	// timeout bounds each request for credentials.
	timeout time.Duration

	mu     sync.Mutex
	loaded *loaded
}

// Owner identifies an account in errors.
type Owner struct {
	// Provider and Account are names.
	Provider, Account string
	// Hint is how to give the account credentials.
	Hint string
}

// loaded is what is known of an account without a network.
type loaded struct {
	credentials aws.CredentialsProvider
	region      string
}

// NewSource returns the source of an account. client is the base of the clients that sign; credentials are fetched with
// AWS's own, which gives up soon where an instance's address does not answer.
func NewSource(owner Owner, account Account, client *http.Client) *Source {
	return &Source{owner: owner, account: account, http: client, timeout: fetchTimeout}
}

// fetchTimeout bounds a request for credentials: AWS's client has no bound of its own, and all calls of the account
// wait for the same request.
const fetchTimeout = 30 * time.Second

// Region returns the account's region, or that of its profile. Without any it fails with PROVIDER_NOT_CONFIGURED.
func (s *Source) Region(ctx context.Context) (string, error) {
	if s.account.Region != "" {
		return s.account.Region, nil
	}
	l, err := s.load(ctx)
	if err != nil {
		return "", err
	}
	if l.region == "" || CheckRegion(l.region) != nil {
		return "", s.notConfigured("has no region; set AWS_REGION, or region in the configuration of modelgw")
	}
	return l.region, nil
}

// Forget drops the credentials, after AWS has refused them: shared files may hold newer ones.
func (s *Source) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = nil
}

// retrieve returns the current credentials. It fails with PROVIDER_NOT_CONFIGURED if there are none, with a transient
// *provider.Error if they cannot be fetched now, and with the context's error.
func (s *Source) retrieve(ctx context.Context) (aws.Credentials, error) {
	l, err := s.load(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	if l.credentials == nil {
		return aws.Credentials{}, s.notConfigured(emptyChain)
	}
	got, err := l.credentials.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, s.fault(ctx, err)
	}
	return got, nil
}

// client is the client of requests for credentials. AWS's own would pass a proxy also to the addresses of a machine.
func (s *Source) client() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTimeout(s.timeout).WithTransportOptions(func(t *http.Transport) { t.Proxy = proxy.FromEnvironment() })
}

// load reads the configuration and files of the account, unless they are read.
func (s *Source) load(ctx context.Context) (*loaded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded != nil {
		return s.loaded, nil
	}
	a := &s.account
	var static aws.CredentialsProvider
	if a.HasKey() {
		static = credentials.NewStaticCredentialsProvider(a.AccessKeyID.Reveal(), a.SecretAccessKey.Reveal(), a.SessionToken.Reveal())
		if a.RoleARN == "" && a.Region != "" { // No file is needed, and none can be at fault.
			s.loaded = &loaded{credentials: static, region: a.Region}
			return s.loaded, nil
		}
	}
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithRegion(a.Region), awsconfig.WithLogger(logging.Nop{}), awsconfig.WithHTTPClient(s.client()),
	}
	if static != nil {
		options = append(options, awsconfig.WithCredentialsProvider(static))
	}
	if a.Profile != "" { // beside a key, for its region
		options = append(options, awsconfig.WithSharedConfigProfile(a.Profile))
	}
	c, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	if region := profileRegion(c); a.Profile != "" && a.Region == "" && region != "" {
		c.Region = region
	}
	l := &loaded{credentials: c.Credentials, region: c.Region}
	if a.RoleARN != "" {
		l.credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(c), a.RoleARN, func(o *stscreds.AssumeRoleOptions) {
			if a.ExternalID != "" {
				o.ExternalID = &a.ExternalID
			}
		}))
	}
	s.loaded = l
	return l, nil
}

// profileRegion returns the region of the profile that a configuration is loaded of; empty if it has none. AWS's own
// programs put the variables first, which here are those of the account `default` alone.
func profileRegion(c aws.Config) string {
	for _, source := range c.ConfigSources {
		if shared, ok := source.(awsconfig.SharedConfig); ok {
			return shared.Region
		}
	}
	return ""
}

const emptyChain = "gets no credentials from AWS's default chain"

// metadata is the service of instances that have a role. Where it cannot be reached there is no instance.
const metadata = "ec2imds"

// fault is the failure to get credentials. What the services and files of AWS say may hold secrets, and is left out
// but for codes.
func (s *Source) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	op, called := errors.AsType[*smithy.OperationError](err)
	if !called || op.ServiceID == metadata {
		if _, missing := errors.AsType[awsconfig.SharedConfigProfileNotExistError](err); missing {
			return s.notConfigured(fmt.Sprintf("has the profile %q, which the shared configuration of AWS does not have", s.account.Profile))
		}
		return s.notConfigured(emptyChain)
	}
	where := op.ServiceID + " " + op.OperationName
	if said, coded := errors.AsType[smithy.APIError](err); coded {
		where += ": " + said.ErrorCode()
	}
	status := 0 // of no answer
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = answer.HTTPStatusCode()
	}
	_, offline := errors.AsType[net.Error](err)
	switch {
	case provider.ClassOf(status) != provider.Final, strings.Contains(where, "Throttling"):
		return s.later(where)
	case offline && status == 0:
		return s.later(where + " cannot be reached")
	default:
		return s.notConfigured("gets no credentials (" + where + ")")
	}
}

func (s *Source) notConfigured(problem string) error {
	return rpcerr.ProviderNotConfigured(s.owner.Provider, s.owner.Account, "%s's account %q %s: %s", s.owner.Provider, s.owner.Account, problem, s.owner.Hint)
}

func (s *Source) later(why string) error {
	return &provider.Error{Provider: s.owner.Provider, Class: provider.Transient, Message: "the credentials cannot be fetched now (" + why + ")"}
}
