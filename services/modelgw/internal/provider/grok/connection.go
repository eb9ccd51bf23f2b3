package grok

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

const (
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 10 * time.Second
	// pingEvery and pingTimeout find a connection that is dead while an answer is awaited. xAI's client pings as often.
	pingEvery, pingTimeout = 30 * time.Second, 10 * time.Second
	// headerBytes bounds the headers and trailers of an answer.
	headerBytes = 64 << 10
)

// redial is the backoff for an unreachable server. The gateway waits between attempts itself.
var redial = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}

// connections are the connections of a provider: one for a credential and an address, which all models share.
type connections struct {
	// roots verify servers; nil are those of the system.
	roots *x509.CertPool

	mu   sync.Mutex
	open map[place]*grpc.ClientConn
}

type place struct {
	account string
	key     int
	address string
}

// to returns the connection of an account. It is established on first use.
func (c *connections) to(account string, access provider.Access) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := place{account, access.Key, access.Endpoint}
	if conn := c.open[at]; conn != nil {
		return conn, nil
	}
	server, err := endpointOf(access.Endpoint)
	if err != nil {
		return nil, err
	}
	if !server.private && !access.APIKey.IsZero() {
		return nil, rpcerr.ProviderNotConfigured(Name, account, "%s would get the key of the account %q without TLS; let its base_url begin with https://", server.target, account)
	}
	conn, err := grpc.NewClient("dns:///"+server.target, c.options(server, access.APIKey)...)
	if err != nil {
		return nil, rpcerr.InvalidField("base_url", "is no address of a gRPC server: %s", server.target)
	}
	if c.open == nil {
		c.open = map[place]*grpc.ClientConn{}
	}
	c.open[at] = conn
	return conn, nil
}

func (c *connections) options(server endpoint, key config.Secret) []grpc.DialOption {
	security := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.roots})
	if server.plain {
		security = insecure.NewCredentials()
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		// The gateway retries, and knows when; the server's own configuration of clients would say otherwise.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(headerBytes),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: dialTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
	}
	if !key.IsZero() {
		options = append(options, grpc.WithPerRPCCredentials(bearer{key: key, plain: server.plain}))
	}
	return options
}

// Close closes all connections.
func (c *connections) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var faults []error
	for _, conn := range c.open {
		faults = append(faults, conn.Close())
	}
	c.open = nil
	return errors.Join(faults...)
}

// bearer is the credential of an account.
type bearer struct {
	key   config.Secret
	plain bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{authorization: "Bearer " + b.key.Reveal()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return !b.plain }

const authorization = "authorization"
