package replica_test

import (
	"context"
	"errors"
	"sync/atomic"
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
			p, err := replica.Join(t.Context(), replica.Config{Table: table, Member: replica.Member{Name: name, Process: process}})
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
		one, err := replica.Join(t.Context(), replica.Config{Table: &slow{table, time.Hour}, Member: replica.Member{Name: "a", Process: "1"}})
		require.NoError(t, err)
		_, err = table.Join(t.Context(), replica.Member{Name: "b", Process: "2"})
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

// deaf is a table that cannot be written for a while.
type deaf struct {
	*memory.Table
	fails atomic.Bool
}

func (d *deaf) Beat(ctx context.Context, process string) error {
	if d.fails.Load() {
		return errors.New("no beat")
	}
	return d.Table.Beat(ctx, process)
}

// TestAProcessThatCouldNotBeatIsFenced: others may have its claims, which it learns with the next heartbeat.
func TestAProcessThatCouldNotBeatIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &deaf{Table: &memory.Table{}}
		p, err := replica.Join(t.Context(), replica.Config{Table: table, Member: replica.Member{Name: "a", Process: "1"}})
		require.NoError(t, err)
		go p.Run(t.Context())
		fence := func(lapses int, open bool) {
			t.Helper()
			got, is := p.Fence()
			assert.Equal(t, lapses, got)
			assert.Equal(t, open, is)
		}
		time.Sleep(time.Minute + replica.DefaultEvery/2)
		fence(0, true)
		table.fails.Store(true)
		time.Sleep(replica.DefaultTTL - replica.DefaultEvery)
		fence(0, true)
		time.Sleep(2 * replica.DefaultEvery)
		fence(0, false)
		table.fails.Store(false)
		time.Sleep(replica.DefaultEvery)
		fence(1, true)
		_, err = table.Join(t.Context(), replica.Member{Name: "a", Process: "2"})
		require.NoError(t, err)
		require.ErrorIs(t, p.Beat(t.Context()), replica.ErrUnknown, "a later process has its name")
		time.Sleep(2 * replica.DefaultTTL)
		fence(1, false)
	})
}
