package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// late is a context whose deadline is over before its timer has fired.
type late struct{ context.Context } //nolint:containedctx // it stands for one

func (l late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// The transport ends a call at its deadline, which it may see before the context of the call does.
func TestADeadlineThatTheTransportSawFirstIsALackOfAnAnswer(t *testing.T) {
	t.Parallel()
	c := New(Config{Sandbox: "projects/p/sandboxes/s"})
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errSilent)
	defer cancel()
	err := c.explain(late{ctx}, time.Hour, status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL"))
	assert.ErrorContains(t, err, "projects/p/sandboxes/s")

	own := status.Error(codes.DeadlineExceeded, "the guest's own")
	alive, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errSilent)
	defer cancel()
	assert.Equal(t, own, c.explain(alive, time.Hour, own))
}
