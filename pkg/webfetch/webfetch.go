// Package webfetch gets what is at an address that a client named: from the hosts that an operator allows, and from
// public addresses alone. The name of an allowed host may lead to an address within the network; such an address is
// never connected to.
package webfetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Config selects what may be fetched.
type Config struct {
	// Hosts are the hosts from which media is fetched, such as `upload.wikimedia.org`; `*.example.com` is every host
	// below a name, and `*` every host. Only public addresses are connected to, on ports 80 and 443. Empty, the default,
	// fetches nothing.
	Hosts []string `yaml:"hosts"`
	// MaxBytes bounds what is fetched for one request, together. Default 20 MiB.
	MaxBytes int64 `yaml:"max_bytes"`
	// Timeout bounds the fetching for one request. Default 20s.
	Timeout time.Duration `yaml:"timeout"`
}

// SetDefaults sets the fields whose default is not zero.
func (c *Config) SetDefaults() {
	c.MaxBytes = cmp.Or(c.MaxBytes, 20<<20)
	c.Timeout = cmp.Or(c.Timeout, 20*time.Second)
}

// Validate refuses what makes no sense.
func (c *Config) Validate() error {
	var faults []error
	for i, host := range c.Hosts {
		if name := strings.TrimPrefix(host, "*."); host != "*" && (name == "" || strings.ContainsAny(name, "*/:@? ")) {
			faults = append(faults, fmt.Errorf("hosts[%d]: %q is no host; write a name, *.name, or *", i, host))
		}
	}
	if c.MaxBytes <= 0 {
		faults = append(faults, errors.New("max_bytes: must be above 0"))
	}
	if c.Timeout <= 0 {
		faults = append(faults, errors.New("timeout: must be above 0"))
	}
	return errors.Join(faults...)
}

// maxRedirects bounds how often a server may name another address.
const maxRedirects = 5

// Fetcher fetches. It is safe for concurrent use.
type Fetcher struct {
	hosts  []string
	client *http.Client
}

// New returns a fetcher, which connects to public addresses alone. A proxy in the environment is not used: it would
// connect to any address.
func New(hosts []string) *Fetcher { return newFetcher(hosts, ssrf.New().Safe) }

func newFetcher(hosts []string, control func(network, address string, c syscall.RawConn) error) *Fetcher {
	f := &Fetcher{hosts: hosts}
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: control}
	f.client = &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("it has more than %d redirects", maxRedirects)
			}
			return f.allowed(r.URL)
		},
	}
	return f
}

// Thing is what was fetched.
type Thing struct {
	// Type is the media type that the server gives, else the one that the body begins like.
	Type string
	Body []byte
}

// Get fetches what is at an address, of at most maxBytes. Its errors are for whoever named the address; they do not say
// what a name within the network leads to.
func (f *Fetcher) Get(ctx context.Context, address string, maxBytes int64) (Thing, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Thing{}, errors.New("it is no address")
	}
	if err := f.allowed(u); err != nil {
		return Thing{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return Thing{}, errors.New("it is no address")
	}
	r.Header.Set("User-Agent", "evalfleet")
	answer, err := f.client.Do(r)
	if err != nil {
		return Thing{}, reason(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return Thing{}, fmt.Errorf("its server answers %d", answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBytes+1))
	switch {
	case err != nil:
		return Thing{}, reason(ctx, err)
	case int64(len(body)) > maxBytes:
		return Thing{}, fmt.Errorf("it has more bytes than the %d that are left for this request", maxBytes)
	}
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil || kind == "application/octet-stream" {
		kind, _, _ = strings.Cut(http.DetectContentType(body), ";")
	}
	return Thing{Type: kind, Body: body}, nil
}

// allowed fails on an address that is not on the web, or whose host is not allowed.
func (f *Fetcher) allowed(u *url.URL) error {
	host := strings.ToLower(u.Hostname())
	if u.Scheme != "http" && u.Scheme != "https" || host == "" || u.User != nil {
		return errors.New("it is no plain http address")
	}
	for _, allowed := range f.hosts {
		allowed = strings.ToLower(allowed)
		if below, many := strings.CutPrefix(allowed, "*"); allowed == host || many && (below == "" || strings.HasSuffix(host, below)) {
			return nil
		}
	}
	return fmt.Errorf("its host %s is not among those that the operator allows", host)
}

// reason is an error as the client may see it: a lookup or a connection that fails says nothing about the network.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("its server does not answer in time")
	}
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		err = wrong.Err
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return errors.New("its server cannot be reached")
	}
	return err
}
