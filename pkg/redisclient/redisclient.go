// Package redisclient connects to the Redis that the replicas of a service share.
//
// What is stored there may be lost at any time, and no call depends on it: commands fail soon, and what uses them does
// without. Commands that belong together name one key, so that a cluster of Redis serves as well as one server.
package redisclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// Timeout is the default of [Options.Timeout]. A server in the same network answers in less than a millisecond.
const Timeout = time.Second

// DefaultPrefix is the beginning of the names of all keys.
const DefaultPrefix = "evalfleet:"

// Options say which server it is.
type Options struct {
	// Addresses are host:port, or the path of a socket. One is a server; several are nodes of a cluster.
	Addresses []string
	Username  string
	Password  config.Secret
	// TLS encrypts connections; nil is plain text.
	TLS *tls.Config
	// DB is the number of the database; a cluster has only 0.
	DB int
	// Prefix begins the names of all keys. Empty is [DefaultPrefix].
	Prefix string
	// Timeout bounds a connection attempt and a command, whatever a context says. Zero is [Timeout]. Tests in simulated
	// time, which does not pass meanwhile, set a long one: on a busy machine an answer takes seconds.
	Timeout time.Duration
}

// Client is a connection pool. It is safe for concurrent use, and Close ends it.
type Client struct {
	redis.UniversalClient

	// Prefix begins the names of all keys.
	Prefix string

	addresses string
}

// silence keeps the library from writing to the standard error: failures are returned, and logged by their receivers.
var silence = sync.OnceFunc(logging.Disable)

// Open makes a client. It does not connect: the first command does.
func Open(o Options) *Client {
	silence()
	return &Client{UniversalClient: connect(o), Prefix: cmp.Or(o.Prefix, DefaultPrefix), addresses: strings.Join(o.Addresses, ", ")}
}

func connect(o Options) redis.UniversalClient {
	timeout := cmp.Or(o.Timeout, Timeout)
	options := &redis.UniversalOptions{
		Addrs: o.Addresses, Username: o.Username, Password: o.Password.Reveal(), DB: o.DB, Dialer: dialer(o.TLS, timeout),
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, ContextTimeoutEnabled: true,
		MaxRetries:               1, // A connection may have ended since its last use.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	// A server that refuses connections is away, and is not asked five times.
	if len(o.Addresses) > 1 {
		cluster := options.Cluster()
		cluster.DialerRetries = 1
		return redis.NewClusterClient(cluster)
	}
	server := options.Simple()
	server.DialerRetries = 1
	return redis.NewClient(server)
}

// dialer returns the function that connects to an address or to a socket.
func dialer(secure *tls.Config, timeout time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		switch {
		case strings.HasPrefix(address, "/"):
			return plain.DialContext(ctx, "unix", address)
		case secure != nil:
			return (&tls.Dialer{NetDialer: plain, Config: secure}).DialContext(ctx, "tcp", address)
		}
		return plain.DialContext(ctx, "tcp", address)
	}
}

// Check returns an error that names the server and the next step unless it answers.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*Timeout)
	defer cancel()
	err := c.Ping(ctx).Err()
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis at %s does not answer: %w; %s", c.addresses, err, remedy(err))
}

// remedy returns what an operator should look at.
func remedy(err error) string {
	for _, known := range []struct{ text, remedy string }{
		{"WRONGPASS", "check the username and the password"},
		{"NOAUTH", "the server wants a password: set one"},
		{"NOPERM", "give the user the right to all commands on the keys of the prefix"},
		{"tls:", "check that the server speaks TLS and has a certificate that this machine trusts"},
		{"out of range", "check the number of the database"},
	} {
		if strings.Contains(err.Error(), known.text) {
			return known.remedy
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "check that the server can be reached from here"
	}
	return "check that it runs there"
}
