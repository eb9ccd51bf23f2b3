package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/lifecycle"
)

// part records its life in log.
func part(log *[]string, name string, startErr error) lifecycle.Part {
	return lifecycle.Part{
		Name:  name,
		Start: func(context.Context) error { *log = append(*log, "+"+name); return startErr },
		Stop:  func(context.Context) error { *log = append(*log, "-"+name); return nil },
	}
}

func TestPartsStartInOrderAndStopInReverse(t *testing.T) {
	t.Parallel()
	var log []string
	var g lifecycle.Group
	g.Add(part(&log, "store", nil), lifecycle.Part{Name: "nothing"}, part(&log, "server", nil))
	require.NoError(t, g.Start(t.Context()))
	require.NoError(t, g.Stop(t.Context(), time.Second))
	assert.Equal(t, []string{"+store", "+server", "-server", "-store"}, log)
	require.NoError(t, g.Stop(t.Context(), time.Second), "stopping twice does nothing")
	assert.Len(t, log, 4)
}

func TestAPartThatFailsStopsThoseBeforeIt(t *testing.T) {
	t.Parallel()
	var log []string
	var g lifecycle.Group
	g.Add(part(&log, "store", nil), part(&log, "server", errors.New("port in use")), part(&log, "never", nil))
	err := g.Start(t.Context())
	assert.ErrorContains(t, err, "start server: port in use")
	assert.Equal(t, []string{"+store", "+server", "-store"}, log)
}

func TestAPartThatDoesNotEndIsGivenUpAndTheOthersStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log []string
		never := make(chan struct{})
		defer close(never)
		var g lifecycle.Group
		stuck := lifecycle.Part{Name: "stuck", Stop: func(context.Context) error { <-never; return nil }}
		g.Add(part(&log, "store", nil), stuck, part(&log, "server", nil))
		require.NoError(t, g.Start(t.Context()))
		begun := time.Now()
		err := g.Stop(t.Context(), 3*time.Second)
		require.ErrorContains(t, err, "stop stuck: has not ended")
		assert.Equal(t, time.Second+lifecycle.Patience, time.Since(begun), "its share of the grace, and a while")
		assert.Equal(t, []string{"+store", "+server", "-server", "-store"}, log)
	})
}

func TestAPatientPartHasWhatIsLeftOfTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		took := map[string]time.Duration{}
		until := func(name string, patient bool) lifecycle.Part {
			return lifecycle.Part{Name: name, Patient: patient, Stop: func(ctx context.Context) error {
				begun := time.Now()
				<-ctx.Done()
				took[name] = time.Since(begun)
				return nil
			}}
		}
		var g lifecycle.Group
		g.Add(until("models", true), until("runs", false), until("front", true), until("announcement", false))
		require.NoError(t, g.Start(t.Context()))
		require.NoError(t, g.Stop(t.Context(), 20*time.Second))
		share := 5 * time.Second
		assert.Equal(t, map[string]time.Duration{"announcement": share, "front": 15 * time.Second, "runs": share, "models": share}, took)
	})
}
