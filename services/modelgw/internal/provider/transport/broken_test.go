package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
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

// late is a context whose deadline has passed, and whose timer has not run yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now(), true }

// A dial ends by itself at the deadline of its context, perhaps before the context does.
func TestADialThatEndsAtTheDeadlineIsTheEndOfTheAttempt(t *testing.T) {
	t.Parallel()
	err := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	assert.ErrorIs(t, transport.Broken(late{t.Context()}, "openai", err), context.DeadlineExceeded)
	_, failed := provider.As(transport.Broken(t.Context(), "openai", err))
	assert.True(t, failed)
}
