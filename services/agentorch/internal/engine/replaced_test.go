package engine_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/replica/memory"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine"
)

// A process whose replica name another process takes ends with that reason: two that drive the same runs would fence
// each other off repeatedly.
func TestASecondProcessOfTheSameReplicaEndsTheFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	table := &memory.Table{}
	join := func(process string) *replica.Process {
		p, err := replica.Join(t.Context(), replica.Config{Table: table, Member: replica.Member{Service: "agentorch", Name: "one", Process: process}})
		require.NoError(t, err)
		return p
	}
	first := engine.New(engine.Config{Beat: 10 * time.Millisecond}, engine.Deps{
		Store: f.Store, Replica: join("1"), Models: f.Models, Tools: f.Tools, Sandboxes: f.Sandboxes, Agents: f.Agents, Scorers: f.Scorers,
		Logger: slog.New(slog.DiscardHandler),
	})
	ended := make(chan error, 1)
	go func() { ended <- first.Run(t.Context()) }()
	waittest.For(t, first.Ready(), "the engine to begin")
	join("2")
	err := waittest.For(t, ended, "the first process to end")
	require.ErrorIs(t, err, replica.ErrUnknown)
	require.ErrorContains(t, err, "the replica one")
}
