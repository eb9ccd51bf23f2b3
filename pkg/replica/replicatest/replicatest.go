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

// Harness describes how to get the table under test.
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

func member(name, process string) replica.Member {
	return replica.Member{Service: "gw", Name: name, Process: process, Address: process + ":1"}
}

func join(t *testing.T, table replica.Table, name, process string) replica.Row {
	t.Helper()
	row, err := table.Join(t.Context(), member(name, process))
	require.NoError(t, err)
	require.Equal(t, member(name, process), row.Member)
	return row
}

// rowOf returns the row with a process; nil for none.
func rowOf(t *testing.T, table replica.Table, process string) *replica.Row {
	t.Helper()
	rows, err := table.List(t.Context())
	require.NoError(t, err)
	for _, row := range rows {
		if row.Process == process {
			return &row
		}
	}
	return nil
}

func replaced(t *testing.T, h Harness, table replica.Table) {
	first := join(t, table, "a", "1")
	assert.EqualValues(t, 1, first.Epoch)
	assert.Zero(t, first.Silence, "there was none before")
	assert.EqualValues(t, 1, join(t, table, "b", "2").Epoch)
	h.Age(t, table, "1", time.Hour)
	next := join(t, table, "a", "3")
	assert.EqualValues(t, 2, next.Epoch)
	assert.GreaterOrEqual(t, next.Silence, time.Hour, "since the process before beat last")
	require.ErrorIs(t, table.Beat(t.Context(), "1"), replica.ErrUnknown)
	assert.Nil(t, rowOf(t, table, "1"))
	for _, process := range []string{"2", "3"} {
		require.NoError(t, table.Beat(t.Context(), process))
	}
	other := member("a", "4")
	other.Service = "orch"
	row, err := table.Join(t.Context(), other)
	require.NoError(t, err)
	assert.EqualValues(t, 1, row.Epoch, "names are those of a service")
	require.NoError(t, table.Beat(t.Context(), "3"))
	rows, err := table.List(t.Context())
	require.NoError(t, err)
	var members []replica.Member
	for _, row := range rows {
		members = append(members, row.Member)
	}
	assert.Equal(t, []replica.Member{member("a", "3"), member("b", "2"), other}, members)
}

func beats(t *testing.T, h Harness, table replica.Table) {
	join(t, table, "a", "1")
	h.Age(t, table, "1", time.Hour)
	assert.GreaterOrEqual(t, rowOf(t, table, "1").Silence, time.Hour)
	require.NoError(t, table.Beat(t.Context(), "1"))
	assert.Less(t, rowOf(t, table, "1").Silence, time.Hour)
}

func leaves(t *testing.T, _ Harness, table replica.Table) {
	join(t, table, "a", "1")
	join(t, table, "b", "2")
	require.NoError(t, table.Leave(t.Context(), "1"))
	require.NoError(t, table.Leave(t.Context(), "1"))
	require.NoError(t, table.Leave(t.Context(), "never"))
	assert.Nil(t, rowOf(t, table, "1"))
	require.ErrorIs(t, table.Beat(t.Context(), ""), replica.ErrUnknown)
	assert.NotNil(t, rowOf(t, table, "2"))
	assert.EqualValues(t, 2, join(t, table, "a", "3").Epoch, "the epoch is kept")
}

func ended(t *testing.T, _ Harness, table replica.Table) {
	join(t, table, "a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := table.Join(ctx, member("a", "2"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, table.Beat(ctx, "1"), context.Canceled)
	require.ErrorIs(t, table.Leave(ctx, "1"), context.Canceled)
	_, err = table.List(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, table.Beat(t.Context(), "1"))
}

func alive(t *testing.T, h Harness, table replica.Table) {
	is := func(p *replica.Process, process string) bool {
		alive, err := p.Alive(t.Context(), process)
		require.NoError(t, err)
		return alive
	}
	living := func(p *replica.Process) (names []string) {
		peers, err := p.Peers(t.Context())
		require.NoError(t, err)
		for _, peer := range peers {
			if peer.Lives {
				names = append(names, peer.Name)
			}
		}
		return names
	}
	start := func(name, process string) *replica.Process {
		p, err := replica.Join(t.Context(), replica.Config{Table: table, Member: member(name, process), TTL: time.Hour})
		require.NoError(t, err)
		return p
	}
	one, two := start("a", "1"), start("b", "2")
	other := member("a", "3")
	other.Service = "orch"
	_, err := table.Join(t.Context(), other)
	require.NoError(t, err)
	assert.True(t, is(one, "2"))
	assert.True(t, is(two, "1"))
	assert.False(t, is(one, "never"))
	assert.False(t, is(one, ""))
	assert.Equal(t, []string{"a", "b"}, living(one), "those of its service")
	h.Age(t, table, "2", 2*time.Hour)
	assert.False(t, is(one, "2"), "silent for longer than the time to live")
	assert.Equal(t, []string{"a"}, living(one))
	require.NoError(t, one.Leave(t.Context()))
	assert.False(t, is(two, "1"))
	assert.Empty(t, living(two))
	require.NoError(t, two.Beat(t.Context()))
	assert.Equal(t, []string{"b"}, living(two))
}
