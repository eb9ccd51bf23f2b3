package gateway

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// guard refuses what a page in somebody's browser could send to a server on that machine: a foreign Host (DNS rebinding) or a foreign Origin.
func guard(cfg Config, listen string, next http.Handler) http.Handler {
	served := func(host string) bool {
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		return loopback(strings.Trim(name, "[]")) || host == listen || slices.Contains(cfg.AllowedHosts, name) || slices.Contains(cfg.AllowedHosts, host)
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

// refuse answers in the form of every other error of the API.
func refuse(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": codes.PermissionDenied, "message": message})
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
