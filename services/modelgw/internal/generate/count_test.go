package generate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Whoever makes the attempt, one that hangs ends: it holds one of few connections.
func TestAQuestionThatHangsIsCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ *generate.Call, _ *generate.Outcome) (*provider.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		g, start := newRig(), time.Now()
		_, err := generate.Chain(hangs, generate.Within(30*time.Second))(t.Context(), g.call(nil), &generate.Outcome{})
		assert.Equal(t, 30*time.Second, time.Since(start))
		assert.Equal(t, provider.Transient, provider.ClassOfError(err), "%v", err)
		assert.ErrorContains(t, err, "longer than 30s")

		left, leave := context.WithCancel(t.Context())
		leave()
		_, err = generate.Chain(hangs, generate.Within(30*time.Second))(left, g.call(nil), &generate.Outcome{})
		require.ErrorIs(t, err, context.Canceled, "a caller that leaves is no failure of the provider")
	})
}
