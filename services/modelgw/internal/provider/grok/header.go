package grok

import (
	"regexp"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

var (
	headerName  = regexp.MustCompile(`^[0-9a-z_.-]+$`)
	headerValue = regexp.MustCompile(`^[ -~]*$`)
	// reserved are the headers that the connection sets itself; further headers with these names would be lost.
	reserved = regexp.MustCompile(`^(` + authorization + `|content-type|user-agent|te|connection|host|grpc-.*)$`)
)

// headers returns the further headers of a call as gRPC sends them.
func headers(given map[string]string) (metadata.MD, error) {
	all := metadata.MD{}
	for name, value := range given {
		lower := strings.ToLower(name)
		if !headerName.MatchString(lower) || reserved.MatchString(lower) || !headerValue.MatchString(value) {
			return nil, rpcerr.InvalidField("config.extra_headers", "%q cannot be sent to %s: the name is reserved, or it or the value has characters that gRPC does not allow", name, Name)
		}
		all.Set(lower, value)
	}
	return all, nil
}
