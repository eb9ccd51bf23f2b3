// Package batchtest is the suite that every [batch.Store] passes.
package batchtest

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// group is one that tests use.
func group(model string) batch.Group {
	return batch.Group{Ref: provider.Ref{Project: "p", Model: model}, URL: "https://vendor/v1/chat", Header: http.Header{"Beta": {"x"}}}
}

func key(id string) effect.Key { return effect.Key{Project: "p", ID: id} }

func join(t *testing.T, s batch.Store, id, body string) batch.Rider {
	t.Helper()
	r, err := s.Join(t.Context(), group("v/m"), &modelv1.BatchSetting{Enabled: true, Size: new(int32(3))}, key(id), "", []byte(body))
	require.NoError(t, err)
	return r
}

// begin puts riders into a new batch.
func begin(t *testing.T, s batch.Store, id string, riders ...batch.Rider) batch.Batch {
	t.Helper()
	var ids []int64
	for _, r := range riders {
		ids = append(ids, r.ID)
	}
	b, err := s.Begin(t.Context(), batch.Batch{ID: id, Group: group("v/m").ID(), Project: "p", Model: "v/m", Account: "default", Created: time.Now()}, ids)
	require.NoError(t, err)
	return b
}

func result(status int, body string) provider.BatchResult {
	return provider.BatchResult{Status: status, Body: []byte(body)}
}

// Run holds a store to its contract. open returns an empty one.
func Run(t *testing.T, open func(t *testing.T) batch.Store) {
	for name, test := range map[string]func(*testing.T, batch.Store){
		"a call with a key has one rider for a body":         oneRider,
		"a rider's way through a batch":                      wholeWay,
		"a failure is told once":                             told,
		"riders that are left":                               left,
		"riders of runs that have ended":                     runs,
		"a batch is cancelled within its project":            cancel,
		"lists show the newest batch first":                  list,
		"old riders and batches expire":                      expire,
		"one process leads until it is dead":                 lead,
		"a batch takes only riders that wait":                onlyWaiting,
		"a batch that was guessed may turn out to be others": guessed,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func oneRider(t *testing.T, s batch.Store) {
	first, again, other := join(t, s, "r1/1", "a"), join(t, s, "r1/1", "a"), join(t, s, "r1/1", "b")
	assert.Equal(t, first.ID, again.ID)
	assert.NotEqual(t, first.ID, other.ID, "another body is another request of the call")
	keyless, next := join(t, s, "", "a"), join(t, s, "", "a")
	assert.NotEqual(t, keyless.ID, next.ID, "without a key each is a request of its own")
	riders, err := s.OfKey(t.Context(), key("r1/1"))
	require.NoError(t, err)
	require.Len(t, riders, 2)
	assert.Equal(t, first.ID, riders[0].ID)
}

func wholeWay(t *testing.T, s batch.Store) {
	a, b := join(t, s, "r1/1", "body a"), join(t, s, "r1/2", "body b")
	of, setting, err := s.Group(t.Context(), a.Group)
	require.NoError(t, err)
	assert.Equal(t, group("v/m"), of)
	assert.EqualValues(t, 3, setting.GetSize())
	waiting, err := s.WaitingIn(t.Context(), a.Group)
	require.NoError(t, err)
	require.Len(t, waiting, 2)
	assert.EqualValues(t, 6, waiting[0].Size)
	busy, err := s.Busy(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{a.Group}, busy)

	sent := begin(t, s, "b1", a, b)
	assert.Equal(t, 2, sent.Requests)
	lines, err := s.Lines(t.Context(), "b1")
	require.NoError(t, err)
	assert.Equal(t, map[int64]int64{a.ID: 6, b.ID: 6}, lines)
	body, err := s.Body(t.Context(), b.ID)
	require.NoError(t, err)
	assert.Equal(t, "body b", string(body))
	_, err = s.Body(t.Context(), 4711)
	require.ErrorIs(t, err, batch.ErrNotFound)
	sent.VendorID, sent.Phase, sent.Completed = "vendor-1", batch.InFlight, 1
	require.NoError(t, s.Update(t.Context(), sent))
	open, err := s.OpenIn(t.Context(), a.Group)
	require.NoError(t, err)
	require.Len(t, open, 1)
	assert.Equal(t, "vendor-1", open[0].VendorID)
	assert.Equal(t, batch.InFlight, open[0].Phase)

	keys, err := s.Settle(t.Context(), "b1", map[int64]provider.BatchResult{a.ID: result(200, "answer a"), 4711: result(200, "of nobody")})
	require.NoError(t, err)
	assert.Equal(t, []effect.Key{key("r1/1")}, keys)
	unsettled, err := s.Unsettled(t.Context(), "b1")
	require.NoError(t, err)
	assert.Equal(t, []int64{b.ID}, unsettled)
	keys, err = s.Settle(t.Context(), "b1", map[int64]provider.BatchResult{a.ID: result(500, "again"), b.ID: result(0, "expired")})
	require.NoError(t, err)
	assert.Equal(t, []effect.Key{key("r1/2")}, keys, "the first result of a rider counts")

	found, err := s.Rider(t.Context(), a.ID)
	require.NoError(t, err)
	assert.Equal(t, batch.Answered, found.State)
	assert.Equal(t, 200, found.Result.Status)
	assert.Equal(t, "answer a", string(found.Result.Body))
	again := join(t, s, "r1/1", "body a")
	assert.Equal(t, a.ID, again.ID)
	assert.Equal(t, "answer a", string(again.Result.Body))

	sent.Phase, sent.Over = batch.Ended, time.Now()
	require.NoError(t, s.Update(t.Context(), sent))
	busy, err = s.Busy(t.Context())
	require.NoError(t, err)
	assert.Empty(t, busy)
	pending, err := s.Pending(t.Context())
	require.NoError(t, err)
	assert.Empty(t, pending)
	_, err = s.Rider(t.Context(), 4711)
	require.ErrorIs(t, err, batch.ErrNotFound)
}

func told(t *testing.T, s batch.Store) {
	a := join(t, s, "r1/1", "a")
	begin(t, s, "b1", a)
	_, err := s.Settle(t.Context(), "b1", map[int64]provider.BatchResult{a.ID: result(500, "no")})
	require.NoError(t, err)
	require.NoError(t, s.Tell(t.Context(), a.ID))
	assert.NotEqual(t, a.ID, join(t, s, "r1/1", "a").ID, "the next attempt is another request")
	riders, err := s.OfKey(t.Context(), key("r1/1"))
	require.NoError(t, err)
	require.Len(t, riders, 2)
	assert.Equal(t, []batch.State{batch.Told, batch.Waiting}, []batch.State{riders[0].State, riders[1].State})
	assert.Equal(t, 500, riders[0].Result.Status)
}

func left(t *testing.T, s batch.Store) {
	waits, sent, stays := join(t, s, "r1/1", "a"), join(t, s, "r1/2", "b"), join(t, s, "r1/3", "c")
	b := begin(t, s, "b1", sent, stays)
	require.NoError(t, s.Leave(t.Context(), waits.ID, sent.ID))
	require.NoError(t, s.Leave(t.Context(), waits.ID, sent.ID), "it may be repeated")
	_, err := s.Rider(t.Context(), waits.ID)
	require.ErrorIs(t, err, batch.ErrNotFound)
	living, err := s.Living(t.Context(), "b1")
	require.NoError(t, err)
	assert.Equal(t, 1, living)
	lines, err := s.Lines(t.Context(), "b1")
	require.NoError(t, err)
	assert.Len(t, lines, 2, "the batch is sent again as it was")
	keys, err := s.Settle(t.Context(), "b1", map[int64]provider.BatchResult{sent.ID: result(200, "late")})
	require.NoError(t, err)
	assert.Empty(t, keys)
	b.Phase, b.Over = batch.Ended, time.Now()
	require.NoError(t, s.Update(t.Context(), b))
	_, err = s.Rider(t.Context(), sent.ID)
	require.ErrorIs(t, err, batch.ErrNotFound)
}

func runs(t *testing.T, s batch.Store) {
	join(t, s, "r1/1", "a")
	join(t, s, "r1/2", "b")
	join(t, s, "r11/1", "c")
	keys, err := s.LeaveRuns(t.Context(), "p", "r1")
	require.NoError(t, err)
	assert.Equal(t, []effect.Key{key("r1/1"), key("r1/2")}, keys)
	keys, err = s.LeaveRuns(t.Context(), "other", "r11")
	require.NoError(t, err)
	assert.Empty(t, keys)
	pending, err := s.Pending(t.Context())
	require.NoError(t, err)
	require.Len(t, pending, 1)
	assert.Equal(t, key("r11/1"), pending[0].Key)
}

func cancel(t *testing.T, s batch.Store) {
	b := begin(t, s, "b1", join(t, s, "r1/1", "a"))
	_, err := s.RequestCancel(t.Context(), "other", "b1")
	require.ErrorIs(t, err, batch.ErrNotFound)
	asked, err := s.RequestCancel(t.Context(), "p", "b1")
	require.NoError(t, err)
	assert.True(t, asked.Cancelled)
	b.Phase, b.Error = batch.InFlight, "x"
	require.NoError(t, s.Update(t.Context(), b), "with what was known before it was cancelled")
	open, err := s.OpenIn(t.Context(), b.Group)
	require.NoError(t, err)
	assert.True(t, open[0].Cancelled)
	b.Phase, b.Over = batch.Ended, time.Now()
	require.NoError(t, s.Update(t.Context(), b))
	require.ErrorIs(t, s.Update(t.Context(), batch.Batch{ID: "nosuch"}), batch.ErrNotFound)
	ended := begin(t, s, "b2", join(t, s, "r1/2", "a"))
	ended.Phase, ended.Over = batch.Ended, time.Now()
	require.NoError(t, s.Update(t.Context(), ended))
	asked, err = s.RequestCancel(t.Context(), "p", "b2")
	require.NoError(t, err)
	assert.False(t, asked.Cancelled, "it has ended")
}

func list(t *testing.T, s batch.Store) {
	for _, id := range []string{"b1", "b2", "b3"} {
		begin(t, s, id, join(t, s, "r1/"+id, "a"))
	}
	ids := func(project, before string, limit int) (all []string) {
		found, err := s.List(t.Context(), project, before, limit)
		require.NoError(t, err)
		for _, b := range found {
			all = append(all, b.ID)
		}
		return all
	}
	assert.Equal(t, []string{"b3", "b2"}, ids("p", "", 2))
	assert.Equal(t, []string{"b1"}, ids("p", "b2", 2))
	assert.Empty(t, ids("other", "", 2))
	assert.Equal(t, []string{"b3", "b2", "b1"}, ids("", "", 9))
}

func expire(t *testing.T, s batch.Store) {
	a, waits := join(t, s, "r1/1", "a"), join(t, s, "r1/2", "b")
	b := begin(t, s, "b1", a)
	_, err := s.Settle(t.Context(), "b1", map[int64]provider.BatchResult{a.ID: result(200, "x")})
	require.NoError(t, err)
	b.Phase, b.Over = batch.Ended, time.Now()
	require.NoError(t, s.Update(t.Context(), b))
	require.NoError(t, s.Expire(t.Context(), time.Now().Add(-time.Hour)))
	_, err = s.Rider(t.Context(), a.ID)
	require.NoError(t, err)
	b.Over = time.Now().Add(2 * time.Hour)
	require.NoError(t, s.Update(t.Context(), b))
	require.NoError(t, s.Expire(t.Context(), time.Now().Add(time.Hour)))
	_, err = s.Rider(t.Context(), a.ID)
	require.NoError(t, err, "it joined long ago, and was answered just now")
	b.Over = time.Now()
	require.NoError(t, s.Update(t.Context(), b))
	require.NoError(t, s.Expire(t.Context(), time.Now().Add(time.Hour)))
	_, err = s.Rider(t.Context(), a.ID)
	require.ErrorIs(t, err, batch.ErrNotFound)
	found, err := s.List(t.Context(), "p", "", 9)
	require.NoError(t, err)
	assert.Empty(t, found)
	_, err = s.Rider(t.Context(), waits.ID)
	require.NoError(t, err, "what waits stays")
	_, _, err = s.Group(t.Context(), waits.Group)
	require.NoError(t, err)
}

func lead(t *testing.T, s batch.Store) {
	for _, step := range []struct{ owner, dead, want string }{{"one", "", "one"}, {"two", "", "one"}, {"two", "three", "one"}, {"two", "one", "two"}, {"one", "", "two"}} {
		leader, err := s.Lead(t.Context(), step.owner, step.dead)
		require.NoError(t, err)
		assert.Equal(t, step.want, leader)
	}
}

func onlyWaiting(t *testing.T, s batch.Store) {
	a := join(t, s, "r1/1", "a")
	begin(t, s, "b1", a)
	assert.Zero(t, begin(t, s, "b2", a).Requests)
	open, err := s.OpenIn(t.Context(), a.Group)
	require.NoError(t, err)
	assert.Len(t, open, 1, "a batch of nobody is not kept")
}

func guessed(t *testing.T, s batch.Store) {
	b := begin(t, s, "b1", join(t, s, "r1/1", "a"))
	b.VendorID, b.Guessed, b.NotThese = "v2", true, []string{"v1", "v0"}
	require.NoError(t, s.Update(t.Context(), b))
	open, err := s.OpenIn(t.Context(), b.Group)
	require.NoError(t, err)
	assert.True(t, open[0].Guessed)
	assert.Equal(t, []string{"v1", "v0"}, open[0].NotThese)
}
