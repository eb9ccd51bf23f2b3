// Package client is the host's end of the connection to a guest. It configures the guest on every connection, continues
// over a new connection when the old one is cut, and converts statuses back into errors of their kind.
package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/bound"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

const (
	maxMessage = 8 << 20
	window     = 1 << 20
)

// Config is how to reach a guest and how to configure it.
type Config struct {
	// Connect waits for the guest's next connection. Its error ends the call that needed the connection.
	Connect func(ctx context.Context) (net.Conn, error)
	// Hello is sent first on every connection.
	Hello *guestv1.HelloRequest
	// BootID is the guest's id, if it is known: another guest in its place is SANDBOX_LOST. If it is empty, the first
	// guest is accepted.
	BootID string
	// Sandbox names the sandbox in errors.
	Sandbox string
}

// Client calls one guest. Its methods are safe for concurrent use. The caller closes it.
type Client struct {
	cfg Config

	mu      sync.Mutex
	current *session
	making  chan struct{} // closed when an attempt to connect is over; nil when there is none
	boot    string
	closed  bool
}

// session is one connection.
type session struct {
	conn  *grpc.ClientConn
	api   guestv1.GuestServiceClient
	hello *guestv1.HelloResponse
}

// New returns a client. It connects at its first use.
func New(cfg Config) *Client { return &Client{cfg: cfg, boot: cfg.BootID} }

// Hello returns the guest's latest description of itself, and connects if necessary.
func (c *Client) Hello(ctx context.Context) (*guestv1.HelloResponse, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	return s.hello, nil
}

// Once calls f with the guest's API. A connection that is cut fails it with UNAVAILABLE.
func (c *Client) Once(ctx context.Context, f func(guestv1.GuestServiceClient) error) error {
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	err = f(s.api)
	if cut(err) {
		c.drop(s)
		if lost := c.lost(ctx); lost != nil {
			return lost
		}
	}
	return c.kind(ctx, err)
}

// lostTimeout bounds the wait for whether a connection was cut because the sandbox is gone.
const lostTimeout = 2 * time.Second

// lost is the error of a sandbox that no longer exists; nil if its guest dials again, or nothing is known yet.
func (c *Client) lost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	if _, err := c.session(ctx); rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST) {
		return err
	}
	return nil
}

// Again calls f with the guest's API, and retries over each new connection when the old one is cut. f must be
// idempotent.
func (c *Client) Again(ctx context.Context, f func(guestv1.GuestServiceClient) error) error {
	for {
		s, err := c.session(ctx)
		if err != nil {
			return err
		}
		err = f(s.api)
		if !cut(err) {
			return c.kind(ctx, err)
		}
		c.drop(s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Close ends the connection; the guest dials again.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.current != nil {
		c.current.conn.Close()
		c.current = nil
	}
}

// kind restores the kind of an error. A call that Close broke off was not cancelled by its caller.
func (c *Client) kind(ctx context.Context, err error) error {
	if status.Code(err) == codes.Canceled && ctx.Err() == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return errClosed()
		}
	}
	return rpcerr.FromStatus(err)
}

func errClosed() error {
	return rpcerr.ServiceUnavailable("sandboxd", time.Second, "the connection to the sandbox is closed")
}

// cut reports whether the connection failed: the guest itself never returns UNAVAILABLE, and the error that another
// guest answers is permanent.
func cut(err error) bool {
	return status.Code(err) == codes.Unavailable && !rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST)
}

// session returns the open connection or makes one; concurrent callers wait for it.
func (c *Client) session(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		switch {
		case c.closed:
			c.mu.Unlock()
			return nil, errClosed()
		case c.current != nil:
			s := c.current
			c.mu.Unlock()
			return s, nil
		case c.making == nil:
			making := make(chan struct{})
			c.making = making
			c.mu.Unlock()
			s, err := c.connect(ctx)
			c.mu.Lock()
			if err == nil && c.closed {
				s.conn.Close()
			} else if err == nil {
				c.current, c.boot = s, s.hello.GetBootId()
			}
			c.making = nil
			close(making)
			c.mu.Unlock()
			if err != nil {
				return nil, err
			}
			continue
		}
		making := c.making
		c.mu.Unlock()
		select {
		case <-making:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// connect takes the guest's next connection and sends Hello. If a connection is cut at once, connect takes the next
// one.
func (c *Client) connect(ctx context.Context) (s *session, err error) {
	bounded, cancel := context.WithTimeoutCause(ctx, bound.GuestAnswer, errSilent)
	defer cancel()
	defer func() { err = c.explain(bounded, bound.GuestAnswer, err) }()
	for ctx := bounded; ; {
		stream, err := c.cfg.Connect(ctx)
		if err != nil {
			return nil, err
		}
		s, err := c.greet(ctx, stream)
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !cut(err):
			return nil, rpcerr.FromStatus(err)
		}
	}
}

func (c *Client) greet(ctx context.Context, stream net.Conn) (*session, error) {
	once := make(chan net.Conn, 1)
	once <- stream
	conn, err := grpc.NewClient("passthrough:///guest",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case s := <-once:
				return s, nil
			default:
				return nil, errCut
			}
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithChainUnaryInterceptor(c.answered), grpc.WithChainStreamInterceptor(c.followed),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	)
	if err != nil {
		stream.Close()
		return nil, err
	}
	s := &session{conn: conn, api: guestv1.NewGuestServiceClient(conn)}
	s.hello, err = s.api.Hello(ctx, c.cfg.Hello)
	if err == nil {
		err = c.known(s.hello.GetBootId())
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

var errCut = errors.New("the guest's connection was cut")

// known fails if another guest answers than before.
func (c *Client) known(boot string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.boot == "" || c.boot == boot {
		return nil
	}
	return rpcerr.SandboxLost(c.cfg.Sandbox, "restarted", "the guest of %s was started anew; what ran in it is gone", c.cfg.Sandbox)
}

// drop discards a connection that failed, so that the next call takes a new one.
func (c *Client) drop(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == s {
		s.conn.Close()
		c.current = nil
	}
}
