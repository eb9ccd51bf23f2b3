package awsauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Signer gives clients for one service. It is safe for concurrent use.
type Signer struct {
	source  *Source
	service string

	mu   sync.Mutex
	last Client
	with aws.Credentials
}

// Client is a client that signs its requests (signature version 4).
type Client struct {
	// HTTP signs each request for Region, and redacts the credentials in what comes back. It follows no redirects.
	HTTP *http.Client
	// Region is the region that requests are signed for.
	Region string
	// Codec returns a codec that redacts the credentials within streams (transport.RedactEvents).
	Codec func(dialect.Codec) dialect.Codec
}

// NewSigner returns a signer for a service, by the name that signatures have.
func NewSigner(source *Source, service string) *Signer {
	return &Signer{source: source, service: service}
}

// Forget drops the credentials, after AWS has refused them.
func (s *Signer) Forget() { s.source.Forget() }

// Client returns a client with the current credentials, for a region; empty is the account's. Its errors are those of
// the credentials: PROVIDER_NOT_CONFIGURED, a transient *provider.Error, or the context's.
func (s *Signer) Client(ctx context.Context, region string) (Client, error) {
	if region == "" {
		var err error
		if region, err = s.source.Region(ctx); err != nil {
			return Client{}, err
		}
	}
	got, err := s.source.retrieve(ctx)
	if err != nil {
		return Client{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	same := s.with.AccessKeyID == got.AccessKeyID && s.with.SecretAccessKey == got.SecretAccessKey && s.with.SessionToken == got.SessionToken
	if s.last.HTTP == nil || !same || s.last.Region != region {
		secrets := []config.Secret{config.NewSecret(got.AccessKeyID), config.NewSecret(got.SecretAccessKey), config.NewSecret(got.SessionToken)}
		signed := *s.source.http
		signed.Transport = &signing{next: s.source.http.Transport, credentials: got, service: s.service, region: region}
		s.last, s.with = Client{HTTP: transport.RedactSecrets(&signed, secrets...), Region: region, Codec: transport.RedactEvents(secrets...)}, got
	}
	return s.last, nil
}

// signing is the transport of a client.
type signing struct {
	next            http.RoundTripper
	credentials     aws.Credentials
	service, region string
}

// RoundTrip implements http.RoundTripper.
func (t *signing) RoundTrip(r *http.Request) (*http.Response, error) {
	signed := r.Clone(r.Context())
	hash, err := hashOf(r)
	if err == nil {
		err = v4.NewSigner().SignHTTP(r.Context(), t.credentials, signed, hash, t.service, t.region, time.Now())
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return t.next.RoundTrip(signed)
}

var errBody = errors.New("the body of a request cannot be read twice, and so not be signed")

// hashOf is the hash of a request's body.
func hashOf(r *http.Request) (string, error) {
	hash := sha256.New()
	if r.Body != nil && r.Body != http.NoBody {
		if r.GetBody == nil {
			return "", errBody
		}
		body, err := r.GetBody()
		if err != nil {
			return "", err
		}
		defer body.Close()
		if _, err := io.Copy(hash, body); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
