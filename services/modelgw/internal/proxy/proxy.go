// Package proxy finds the proxies through which vendors are reached.
package proxy

import (
	"net/http"
	"net/netip"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// amazon has the addresses, not link-local ones, at which Amazon gives credentials over IPv6: fd00:ec2::254 to
// instances and fd00:ec2::23 to pods.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
// https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html
var amazon = netip.MustParsePrefix("fd00:ec2::/32")

// FromEnvironment returns the function that returns the proxy which the environment names now for a request; nil is
// none. Addresses of this machine have none, nor have those at which clouds give the credentials of a machine, in
// clear: link-local ones, and Amazon's. A proxy whose own address cannot be read counts as none, as in net/http.
func FromEnvironment() func(*http.Request) (*url.URL, error) {
	named := httpproxy.FromEnvironment().ProxyFunc()
	return func(r *http.Request) (*url.URL, error) {
		if ip, err := netip.ParseAddr(r.URL.Hostname()); err == nil && (ip.Unmap().IsLinkLocalUnicast() || amazon.Contains(ip)) {
			return nil, nil
		}
		return named(r.URL)
	}
}
