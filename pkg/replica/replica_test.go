package replica_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/replica/memory"
)

// TestAProcessThatBeatsLives: one that stops beating counts as dead after its time to live.
func TestAProcessThatBeatsLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &memory.Table{}
		join := func(name, process string) *replica.Process {
			p, err := replica.Join(t.Context(), replica.Config{Table: table, Replica: name, Process: process})
			require.NoError(t, err)
			return p
		}
		one, two := join("a", "1"), join("b", "2")
		ctx, stop := context.WithCancel(t.Context())
		go two.Run(ctx)
		alive := func() bool {
			is, err := one.Alive(t.Context(), "2")
			require.NoError(t, err)
			return is
		}
		time.Sleep(time.Minute)
		assert.True(t, alive())
		stop()
		synctest.Wait()
		time.Sleep(replica.DefaultTTL + replica.DefaultEvery)
		assert.False(t, alive())
	})
}

// slow is a table whose first beat takes long, as on a machine that sleeps.
type slow struct {
	*memory.Table
	takes time.Duration
}

func (s *slow) Beat(ctx context.Context, process string) error {
	time.Sleep(s.takes)
	s.takes = 0
	return s.Table.Beat(ctx, process)
}

// TestAProcessThatStoodStillIsPatient: others may have stood still with it, and beat again only now.
func TestAProcessThatStoodStillIsPatient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &memory.Table{}
		one, err := replica.Join(t.Context(), replica.Config{Table: &slow{table, time.Hour}, Replica: "a", Process: "1"})
		require.NoError(t, err)
		_, err = table.Join(t.Context(), "b", "2")
		require.NoError(t, err)
		go one.Run(t.Context())
		alive := func() bool {
			is, err := one.Alive(t.Context(), "2")
			require.NoError(t, err)
			return is
		}
		time.Sleep(time.Minute)
		assert.False(t, alive())
		time.Sleep(time.Hour - time.Minute + 3*replica.DefaultEvery)
		assert.True(t, alive(), "just after the standstill")
		time.Sleep(replica.DefaultTTL)
		assert.False(t, alive())
	})
}
