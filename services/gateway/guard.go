package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// guard rejects requests that a web page in a browser could send to a server on the same machine: those with a foreign
// Host (DNS rebinding) or a foreign Origin.
func guard(cfg Config, listen string, next http.Handler) http.Handler {
	served := func(host string) bool {
		if host == listen {
			return true
		}
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		return loopback(strings.Trim(name, "[]")) || slices.Contains(cfg.AllowedHosts, name) || slices.Contains(cfg.AllowedHosts, host)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !served(r.Host) {
			refuse(w, "host "+r.Host+" is not served here; add it to allowed_hosts if it should be")
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			u, err := url.Parse(origin)
			if err != nil || !served(u.Host) {
				refuse(w, "origin "+origin+" may not call this server; add its host to allowed_hosts if it should")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers a request with a foreign Host or Origin.
func refuse(w http.ResponseWriter, message string) {
	answer(w, http.StatusForbidden, rpcerr.ActionDenied("http.host", "%s", message))
}

// answer writes err in the error format of the API.
func answer(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(rpcerr.JSON(rpcerr.ToStatus(err), code)) //nolint:gosec // JSON, in which &, < and > are escaped.
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
