// Package proxy finds the proxies through which vendors are reached.
package proxy

import (
	"net/http"
	"net/netip"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// FromEnvironment returns the function that returns the proxy which the environment names now for a request; nil is none.
// Addresses of this machine have none, nor have link-local ones: clouds give the credentials of a machine there, in
// clear. A proxy whose own address cannot be read counts as none, as in net/http.
func FromEnvironment() func(*http.Request) (*url.URL, error) {
	named := httpproxy.FromEnvironment().ProxyFunc()
	return func(r *http.Request) (*url.URL, error) {
		if ip, err := netip.ParseAddr(r.URL.Hostname()); err == nil && ip.Unmap().IsLinkLocalUnicast() {
			return nil, nil
		}
		return named(r.URL)
	}
}
