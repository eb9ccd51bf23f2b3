package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A command that waits for a service behind its server reports that, and continues once the service is there.
func TestACommandSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := &server{away: "toolexec", found: make(chan struct{})}
	c := begin(t, append(serve(t, s), "tools")...)
	require.Eventually(t, func() bool {
		return strings.Contains(c.stderr.String(), "waiting for toolexec, which does not answer the server")
	}, time.Minute, 10*time.Millisecond)
	close(s.found)
	assert.Zero(t, c.end(t), c.stderr.String())
	assert.Contains(t, c.stdout.String(), "bash")
	assert.NotContains(t, c.stderr.String(), "modelgw")
}
