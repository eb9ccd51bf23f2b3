package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

func TestWhatIsMissingIsMeasuredAgain(t *testing.T) {
	bubble(t, func(h *house) {
		measured := 0
		var problem, fault error = rpcerr.EngineUnavailable("paper", "desk", time.Second, "no desk"), nil
		h.driver.probe = func(context.Context) (driver.Capabilities, error) {
			measured++
			return driver.Capabilities{Problem: problem}, fault
		}
		measure := func() (bool, error) {
			caps, err := h.boxes.Measure(h.Context(), "paper")
			return caps.Available(), err
		}
		for range 3 {
			available, err := measure()
			require.NoError(h, err)
			assert.False(h, available)
		}
		assert.Equal(h, 1, measured, "what was just measured is believed")

		time.Sleep(time.Second)
		problem, fault = nil, errors.New("cannot measure")
		_, err := measure()
		require.ErrorIs(h, err, fault)

		time.Sleep(time.Second)
		fault = nil
		for range 3 {
			available, err := measure()
			require.NoError(h, err)
			assert.True(h, available)
			time.Sleep(time.Hour)
		}
		assert.Equal(h, 3, measured, "what works is measured once")

		_, err = h.boxes.Measure(h.Context(), "glass")
		assert.True(h, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_DRIVER_NOT_FOUND), "%v", err)
	})
}

func TestADriverThatHangsIsNotWaitedForLong(t *testing.T) {
	bubble(t, func(h *house) {
		h.driver.probe = func(ctx context.Context) (driver.Capabilities, error) {
			<-ctx.Done()
			return driver.Capabilities{}, ctx.Err()
		}
		began, results := time.Now(), make(chan error)
		leaving, leave := context.WithTimeout(h.Context(), time.Second)
		defer leave()
		for _, ctx := range []context.Context{leaving, h.Context(), h.Context()} {
			go func() {
				_, err := h.boxes.Measure(ctx, "paper")
				results <- err
			}()
		}
		for range 3 {
			require.ErrorIs(h, <-results, context.DeadlineExceeded)
		}
		assert.LessOrEqual(h, time.Since(began), 20*time.Second, "all wait for the same measurement")
	})
}

func TestCheckRefusesWhatCreateWould(t *testing.T) {
	bubble(t, func(h *house) {
		check := func(spec *sandboxv1.SandboxSpec) error {
			_, err := h.boxes.Check(h.Context(), spec)
			return err
		}
		spec, err := h.boxes.Check(h.Context(), nil)
		require.NoError(h, err)
		assert.Equal(h, "paper", spec.GetDriver())
		assert.Positive(h, spec.GetLimits().GetMemoryBytes())
		assert.ErrorContains(h, check(&sandboxv1.SandboxSpec{Driver: "glass"}), "glass")
		assert.ErrorContains(h, check(&sandboxv1.SandboxSpec{Env: map[string]string{"a=b": ""}}), "spec.env")
		h.driver.absent = func() error { return rpcerr.ImageUnavailable("i", "paper", "no image i") }
		require.ErrorContains(h, check(nil), "no image i")
		h.driver.absent = nil
		assert.Empty(h, h.driver.boxes, "nothing is made")
	})
	for _, tt := range []struct {
		problem error
		says    string
	}{
		{rpcerr.ImageUnavailable("own", "paper", "no image of its own"), ""},
		{rpcerr.IsolationUnavailable("walls", "no walls"), "no walls"},
		{rpcerr.EngineUnusable("paper", "desk", "no such runtime"), "no such runtime"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			bubble(t, func(h *house) {
				h.driver.probe = func(context.Context) (driver.Capabilities, error) {
					return driver.Capabilities{Problem: tt.problem}, nil
				}
				_, err := h.boxes.Check(h.Context(), &sandboxv1.SandboxSpec{Image: "theirs"})
				if tt.says == "" {
					require.NoError(h, err)
					return
				}
				require.EqualError(h, err, tt.says)
			})
		})
	}
}

func TestAnEngineThatIsAwayLeavesTheKeyFree(t *testing.T) {
	bubble(t, func(h *house) {
		var away atomic.Bool
		away.Store(true)
		h.driver.absent = func() error {
			if away.Load() {
				return rpcerr.EngineUnavailable("paper", "desk", time.Second, "no desk")
			}
			return nil
		}
		for range 10 { // more often than a crash is survived
			_, err := h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", RequestID: "k"})
			require.EqualError(h, err, "no desk")
			assert.Positive(h, rpcerr.RetryAfter(err))
		}
		h.driver.refuse = rpcerr.EngineUnavailable("paper", "desk", time.Second, "no desk") // the remains cannot be removed either
		_, err := h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", RequestID: "k"})
		require.EqualError(h, err, "no desk")
		_, err = h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", RequestID: "k"})
		require.EqualError(h, err, "no desk")
		away.Store(false)
		h.driver.refuse = nil
		assert.Equal(h, lifecycle.Ready, h.create(nil, "k").State)
	})
}
