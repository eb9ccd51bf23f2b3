package effecttest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
)

// actions are the operations on a key.
var actions = []struct {
	name string
	do   func(*testing.T, effect.Ledger) error
}{
	{"claim", func(t *testing.T, l effect.Ledger) error {
		_, _, err := l.Claim(t.Context(), key, content, another, 0)
		return err
	}},
	{"claim other content", func(t *testing.T, l effect.Ledger) error {
		_, _, err := l.Claim(t.Context(), key, altered, another, 0)
		return err
	}},
	{"finish", func(t *testing.T, l effect.Ledger) error {
		return l.Finish(t.Context(), key, owner, effect.Outcome{State: effect.Done, Body: []byte("second")})
	}},
	{"finish as another", func(t *testing.T, l effect.Ledger) error {
		return l.Finish(t.Context(), key, another, done)
	}},
	{"drop", func(t *testing.T, l effect.Ledger) error { return l.Drop(t.Context(), key, owner) }},
	{"drop as another", func(t *testing.T, l effect.Ledger) error { return l.Drop(t.Context(), key, another) }},
	{"yield", func(t *testing.T, l effect.Ledger) error { return l.Yield(t.Context(), owner, key) }},
	{"yield as another", func(t *testing.T, l effect.Ledger) error { return l.Yield(t.Context(), another, key) }},
	{"reclaim", func(t *testing.T, l effect.Ledger) error {
		_, err := l.Reclaim(t.Context(), key, owner, another)
		return err
	}},
	{"reclaim from another", func(t *testing.T, l effect.Ledger) error {
		_, err := l.Reclaim(t.Context(), key, another, owner)
		return err
	}},
	{"cancel", func(t *testing.T, l effect.Ledger) error {
		_, err := l.Cancel(t.Context(), key)
		return err
	}},
	{"release", func(t *testing.T, l effect.Ledger) error { return l.Release(t.Context(), key) }},
}

// move is the result of an action.
type move struct {
	to  effect.State
	err error
}

func to(s effect.State) move { return move{to: s} }

// moves has a row for each state and a column for each action, in their order.
var moves = map[effect.State][]move{
	0: {
		to(effect.Running), to(effect.Running), // a key never seen takes any content
		{0, effect.ErrUnknown},
		{0, effect.ErrUnknown},
		{0, effect.ErrUnknown},
		{0, effect.ErrUnknown},
		to(0), to(0),
		{0, effect.ErrUnknown},
		{0, effect.ErrUnknown},
		to(effect.Cancelled), to(0),
	},
	effect.Running: {
		to(effect.Running),
		{effect.Running, effect.ErrContentMismatch},
		to(effect.Done),
		{effect.Running, effect.ErrNotOwner},
		to(effect.Dropped),
		{effect.Running, effect.ErrNotOwner},
		to(effect.Yielded), to(effect.Running),
		to(effect.Running),
		{effect.Running, effect.ErrNotOwner},
		to(effect.Cancelled), to(effect.Running),
	},
	effect.Dropped:       free(effect.Dropped),
	effect.Yielded:       free(effect.Yielded),
	effect.Done:          finished(effect.Done),
	effect.Failed:        finished(effect.Failed),
	effect.Indeterminate: finished(effect.Indeterminate),
	effect.Cancelled: {
		to(effect.Cancelled), to(effect.Cancelled),
		{effect.Cancelled, effect.ErrCancelled},
		{effect.Cancelled, effect.ErrCancelled},
		{effect.Cancelled, effect.ErrCancelled},
		{effect.Cancelled, effect.ErrCancelled},
		to(effect.Cancelled), to(effect.Cancelled),
		{effect.Cancelled, effect.ErrCancelled},
		{effect.Cancelled, effect.ErrCancelled},
		to(effect.Cancelled), to(effect.Cancelled),
	},
	effect.Released: {
		to(effect.Released),
		{effect.Released, effect.ErrContentMismatch},
		{effect.Released, effect.ErrNotOwner},
		{effect.Released, effect.ErrNotOwner},
		{effect.Released, effect.ErrNotOwner},
		{effect.Released, effect.ErrNotOwner},
		to(effect.Released), to(effect.Released),
		{effect.Released, effect.ErrNotOwner},
		{effect.Released, effect.ErrNotOwner},
		to(effect.Released), to(effect.Released),
	},
}

// finished is the row of a state with an outcome, which stays until it is released.
func finished(s effect.State) []move {
	return []move{
		to(s),
		{s, effect.ErrContentMismatch},
		{s, effect.ErrNotOwner},
		{s, effect.ErrNotOwner},
		{s, effect.ErrNotOwner},
		{s, effect.ErrNotOwner},
		to(s), to(s),
		{s, effect.ErrNotOwner},
		{s, effect.ErrNotOwner},
		to(s), to(effect.Released),
	}
}

// free is the row of a state that the next claim ends.
func free(s effect.State) []move {
	return []move{
		to(effect.Running),
		{s, effect.ErrContentMismatch},
		{s, effect.ErrNotOwner},
		{s, effect.ErrNotOwner},
		{s, effect.ErrNotOwner},
		{s, effect.ErrNotOwner},
		to(s), to(s),
		{s, effect.ErrNotOwner},
		{s, effect.ErrNotOwner},
		to(effect.Cancelled), to(s),
	}
}

// bring takes the key from nothing to a state.
func bring(t *testing.T, l effect.Ledger, s effect.State) {
	t.Helper()
	if s == 0 {
		return
	}
	claim(t, l, key)
	switch s {
	case effect.Running:
	case effect.Dropped:
		require.NoError(t, l.Drop(t.Context(), key, owner))
	case effect.Yielded:
		require.NoError(t, l.Yield(t.Context(), owner, key))
	case effect.Done, effect.Failed, effect.Indeterminate:
		require.NoError(t, l.Finish(t.Context(), key, owner, effect.Outcome{State: s, Body: []byte("first")}))
	case effect.Cancelled:
		_, err := l.Cancel(t.Context(), key)
		require.NoError(t, err)
	case effect.Released:
		require.NoError(t, l.Finish(t.Context(), key, owner, done))
		require.NoError(t, l.Release(t.Context(), key))
	}
}

// everyMove walks every cell of moves.
func everyMove(t *testing.T, h Harness) {
	for from, row := range moves {
		require.Len(t, row, len(actions))
		for i, action := range actions {
			t.Run(from.String()+"/"+action.name, func(t *testing.T) {
				t.Parallel()
				l, want := h.New(t), row[i]
				bring(t, l, from)
				err := action.do(t, l)
				if want.err == nil {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, want.err)
				}
				rec, err := l.Lookup(t.Context(), key)
				if want.to == 0 {
					assert.ErrorIs(t, err, effect.ErrUnknown)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, want.to, rec.State)
				if from.Finished() && want.to == from {
					assert.Equal(t, "first", string(rec.Body), "the outcome stands")
				}
			})
		}
	}
}
