package modelgw

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// RefuseOwn fails if an account's base URL, or one that its requests may name, leads to one of these addresses,
// host:port, at which the platform itself serves clients: calls of the account would return to it, with the wrong
// credential.
func (c *Config) RefuseOwn(addresses ...string) error {
	bases := c.baseURLs()
	maps.Copy(bases, c.allowedBaseURLs())
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(bases)) {
		for _, own := range addresses {
			if leadsTo(bases[name], own) {
				faults = append(faults, fmt.Errorf("%s is %s, which is evalfleet's own endpoint at %s: it is meant for programs that call evalfleet; unset it where evalfleet itself starts",
					name, redacted(bases[name]), own))
				break
			}
		}
	}
	return errors.Join(faults...)
}

// leadsTo reports whether a URL has the host and port of an address. All loopback hosts are equal. An address of all
// interfaces also equals loopback, each IP address of this machine, and its name. No name is resolved.
func leadsTo(base, address string) bool {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return false
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != provider.Port(u) {
		return false
	}
	to := plainName(u.Hostname())
	return plainName(host) == to || local(host) && local(to) || everyInterface(host) && ofThisMachine(to)
}

// plainName is a host's name as it is compared.
func plainName(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

func local(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || everyInterface(host) || err == nil && ip.IsLoopback()
}

// everyInterface reports whether a listener at a host is reachable at every address of the machine.
func everyInterface(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// ofThisMachine reports whether a host is an IP address of an interface of this machine, or its name with or without
// its domain.
func ofThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		name, _ := os.Hostname() // Where it is not known, calls of the account fail later.
		short, _, _ := strings.Cut(plainName(name), ".")
		return host != "" && (host == plainName(name) || host == short)
	}
	interfaces, _ := net.InterfaceAddrs() // Where they are not known, calls of the account fail later.
	return slices.ContainsFunc(interfaces, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == ip.Unmap()
	})
}

// redacted is a URL without credentials and query.
func redacted(base string) string {
	u, _ := url.Parse(base) // It was parsed before.
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
