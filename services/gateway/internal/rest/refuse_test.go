package rest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
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

func TestACompressedBodyIsNamed(t *testing.T) {
	t.Parallel()
	text := []byte("\x1f\x8b\x08\x00")
	_, err := (&messages{}).read(text, &modelv1.GenerateRequest{})
	assert.ErrorContains(t, err, "the body is compressed; send it as it is, without Content-Encoding")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, strings.Repeat(" ", len(p))), nil }

// A key of a map may be long, and have many values below it.
func TestPathsOfManyValuesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 2<<20)
	begun := time.Now()
	body := `{"sandboxes":{"` + long + `":{"env":{"a":7},"labels":[` + strings.Repeat("1,", 100_000) + `1]}}}`
	err := misfit([]byte(body), &agentv1.RunSpec{}, io.EOF)
	failed, ok := errors.AsType[*rpcerr.Error](err)
	require.True(t, ok)
	require.NotEmpty(t, failed.Fields)
	for _, f := range failed.Fields {
		assert.Equal(t, "sandboxes."+long[:bound.FieldPathBytes-len("sandboxes.…")]+"…", f.Path)
	}
	assert.Less(t, time.Since(begun), waittest.Bound)
}
