package rest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

// A client that sends an oversized body can send all of it before it reads the answer.
func TestABodyThatIsTooLargeIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size, left int64
		expect     string
		tooLarge   bool
	}{
		"within the bound":            {MaxBodyBytes, 0, "", false},
		"over it":                     {MaxBodyBytes + 1, 0, "", true},
		"far over it":                 {MaxBodyBytes + bound.DiscardedBytes, 0, "", true},
		"without end":                 {2*MaxBodyBytes + bound.DiscardedBytes + 1<<20, 1 << 20, "", true},
		"of a client that asks first": {MaxBodyBytes + 1, MaxBodyBytes + 1, "100-continue", true},
		"small, and of one that asks": {10, 0, "100-continue", false},
		"asks for something else":     {MaxBodyBytes + 1, 0, "more", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := &io.LimitedReader{R: endless{}, N: tt.size}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", sent)
			r.ContentLength = tt.size
			r.Header.Set("Expect", tt.expect)
			bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				assert.LessOrEqual(t, n, int64(MaxBodyBytes))
				if assert.Equal(t, tt.tooLarge, err != nil) && tt.tooLarge {
					assert.Contains(t, unread(err).Error(), "the body may have 6291456 bytes and has more")
					_, again := r.Body.Read(make([]byte, 1))
					assert.ErrorIs(t, again, errBodyTooLarge)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
			if tt.left == 0 {
				assert.Zero(t, sent.N, "all of it was read")
			} else {
				assert.GreaterOrEqual(t, sent.N, tt.left, "it is not read without end")
			}
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, strings.Repeat(" ", len(p))), nil }
