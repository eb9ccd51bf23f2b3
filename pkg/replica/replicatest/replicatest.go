// Package replicatest is the suite that every table of replicas passes.
package replicatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/replica"
)

// Harness says how to get the table under test.
type Harness struct {
	// New returns an empty table.
	New func(t *testing.T) replica.Table
	// Age makes the last beat of a process older.
	Age func(t *testing.T, table replica.Table, process string, by time.Duration)
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for name, test := range map[string]func(*testing.T, Harness, replica.Table){
		"AProcessIsReplacedByTheNextOfItsReplica": replaced,
		"BeatsAreByTheStoresClock":                beats,
		"WhoLeavesIsKnownNoMore":                  leaves,
		"EndedContextChangesNothing":              ended,
		"AliveIsWhoBeats":                         alive,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h, h.New(t))
		})
	}
}

func join(t *testing.T, table replica.Table, name, process string) int64 {
	t.Helper()
	epoch, err := table.Join(t.Context(), name, process)
	require.NoError(t, err)
	return epoch
}

func replaced(t *testing.T, _ Harness, table replica.Table) {
	assert.EqualValues(t, 1, join(t, table, "gw/a", "1"))
	assert.EqualValues(t, 1, join(t, table, "gw/b", "2"))
	assert.EqualValues(t, 2, join(t, table, "gw/a", "3"))
	require.ErrorIs(t, table.Beat(t.Context(), "1"), replica.ErrUnknown)
	_, err := table.Silence(t.Context(), "1")
	require.ErrorIs(t, err, replica.ErrUnknown)
	for _, process := range []string{"2", "3"} {
		require.NoError(t, table.Beat(t.Context(), process))
	}
}

func beats(t *testing.T, h Harness, table replica.Table) {
	join(t, table, "gw/a", "1")
	h.Age(t, table, "1", time.Hour)
	silence, err := table.Silence(t.Context(), "1")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, silence, time.Hour)
	require.NoError(t, table.Beat(t.Context(), "1"))
	silence, err = table.Silence(t.Context(), "1")
	require.NoError(t, err)
	assert.Less(t, silence, time.Hour)
}

func leaves(t *testing.T, _ Harness, table replica.Table) {
	join(t, table, "gw/a", "1")
	join(t, table, "gw/b", "2")
	require.NoError(t, table.Leave(t.Context(), "1"))
	require.NoError(t, table.Leave(t.Context(), "1"))
	require.NoError(t, table.Leave(t.Context(), "never"))
	_, err := table.Silence(t.Context(), "1")
	require.ErrorIs(t, err, replica.ErrUnknown)
	_, err = table.Silence(t.Context(), "")
	require.ErrorIs(t, err, replica.ErrUnknown)
	_, err = table.Silence(t.Context(), "2")
	require.NoError(t, err)
	assert.EqualValues(t, 2, join(t, table, "gw/a", "3"), "the epoch is kept")
}

func ended(t *testing.T, _ Harness, table replica.Table) {
	join(t, table, "gw/a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := table.Join(ctx, "gw/a", "2")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, table.Beat(ctx, "1"), context.Canceled)
	require.ErrorIs(t, table.Leave(ctx, "1"), context.Canceled)
	_, err = table.Silence(ctx, "1")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, table.Beat(t.Context(), "1"))
}

func alive(t *testing.T, h Harness, table replica.Table) {
	is := func(p *replica.Process, process string) bool {
		alive, err := p.Alive(t.Context(), process)
		require.NoError(t, err)
		return alive
	}
	one, err := replica.Join(t.Context(), replica.Config{Table: table, Replica: "gw/a", Process: "1", TTL: time.Hour})
	require.NoError(t, err)
	two, err := replica.Join(t.Context(), replica.Config{Table: table, Replica: "gw/b", Process: "2", TTL: time.Hour})
	require.NoError(t, err)
	assert.True(t, is(one, "2"))
	assert.True(t, is(two, "1"))
	assert.False(t, is(one, "never"))
	h.Age(t, table, "2", 2*time.Hour)
	assert.False(t, is(one, "2"), "silent for longer than the time to live")
	require.NoError(t, one.Leave(t.Context()))
	assert.False(t, is(two, "1"))
}
