package transport_test

import (
	"errors"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// A connection that failed is named by its host and port, and by nothing else of the URL.
func TestABrokenConnectionNamesItsAddress(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for says, err := range map[string]error{
		"the connection to 127.0.0.1:9 failed (dial)": &url.Error{Op: "Post", URL: "http://ada:pass-word@127.0.0.1:9/v1/chat?key=hidden", Err: refused},
		"the connection to api.openai.com:443 failed": &url.Error{Op: "Post", URL: "https://api.openai.com/v1", Err: io.ErrUnexpectedEOF},
		"the connection to [::1]:80 failed (dial)":    &url.Error{Op: "Post", URL: "http://[::1]/v1", Err: refused},
		"the connection failed (dial)":                refused,
	} {
		got := transport.Broken(t.Context(), "openai", err).Error()
		assert.Contains(t, got, says)
		for _, hidden := range []string{"ada", "pass-word", "hidden", "/v1"} {
			assert.NotContains(t, got, hidden)
		}
	}
}
