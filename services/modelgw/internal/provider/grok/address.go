package grok

import (
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// WithScheme returns an address as a URL. Clients of xAI name hosts without a scheme: such an address has TLS, unless
// the host is loopback. An empty address stays empty.
func WithScheme(address string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	address = strings.TrimLeft(address, "/")
	if u, err := url.Parse("//" + address); err == nil && loopback(u.Hostname()) {
		return "http://" + address
	}
	return "https://" + address
}

// loopback reports whether a host is this machine's own loopback.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// endpoint is where a server is.
type endpoint struct {
	// target is its host and port.
	target string
	// plain means without TLS; private means that no other machine can read what is sent: with TLS, or by loopback.
	plain, private bool
}

// endpointOf reads an address that has a scheme. gRPC has no path: methods have their own.
func endpointOf(address string) (endpoint, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return endpoint{}, rpcerr.InvalidField("base_url", "is no address of a gRPC server; write https://host or host:port")
	}
	if u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, rpcerr.InvalidField("base_url", "must be no more than the scheme, host and port of a gRPC server")
	}
	plain := u.Scheme == "http"
	return endpoint{target: net.JoinHostPort(u.Hostname(), provider.Port(u)), plain: plain, private: !plain || loopback(u.Hostname())}, nil
}
