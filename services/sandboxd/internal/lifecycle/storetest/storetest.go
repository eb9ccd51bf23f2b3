// Package storetest is the conformance suite for stores of sandboxes.
package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

// Run runs the suite. Open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) lifecycle.Store) {
	for name, test := range map[string]func(*testing.T, lifecycle.Store){
		"installation": installation,
		"keeps":        keeps,
		"revisions":    revisions,
		"one winner":   oneWinner,
		"hosts":        hosts,
		"list":         list,
		"forget":       forget,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// record is a new record, created that many seconds after the first.
func record(id string, seconds int64) *lifecycle.Sandbox {
	at := time.Unix(1000+seconds, 5)
	return &lifecycle.Sandbox{
		Project: "p", ID: id, Host: "here", Spec: &sandboxv1.SandboxSpec{Driver: "local", Labels: map[string]string{"a": "b"}}, State: lifecycle.Ready, Reason: "why",
		Report: driver.Report{Workdir: "/work"}, BootID: "boot", Timing: &effectv1.Timing{Queued: durationpb.New(time.Second)}, Created: at, Lease: time.Minute, LeaseEnd: at.Add(time.Minute), Deadline: at.Add(time.Hour),
		Changed: at.Add(time.Second), Revision: 1,
	}
}

func put(t *testing.T, s lifecycle.Store, b *lifecycle.Sandbox) {
	t.Helper()
	require.NoError(t, s.Put(t.Context(), b))
}

func ids(boxes []*lifecycle.Sandbox) (all []string) {
	for _, b := range boxes {
		all = append(all, b.ID)
	}
	return all
}

func installation(t *testing.T, s lifecycle.Store) {
	name, err := s.Installation(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, name)
	again, err := s.Installation(t.Context())
	require.NoError(t, err)
	assert.Equal(t, name, again)
}

func keeps(t *testing.T, s lifecycle.Store) {
	want := record("a", 0)
	put(t, s, want)
	got, err := s.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, want.Spec.GetLabels(), got.Spec.GetLabels())
	assert.Equal(t, want.Report, got.Report)
	assert.Equal(t, want.Timing.GetQueued().AsDuration(), got.Timing.GetQueued().AsDuration())
	want.Spec, got.Spec, want.Timing, got.Timing = nil, nil, nil, nil
	assert.Equal(t, want, got)
	_, err = s.Load(t.Context(), "b")
	require.ErrorIs(t, err, lifecycle.ErrNotFound)
}

// A record is changed from the one that was read, or not at all.
func revisions(t *testing.T, s lifecycle.Store) {
	b := record("a", 0)
	b.Revision = 2
	require.ErrorIs(t, s.Put(t.Context(), b), lifecycle.ErrChanged, "there is none to change")
	b.Revision = 1
	put(t, s, b)
	for _, revision := range []int64{0, 1, 3} {
		b.Revision, b.Reason = revision, "another"
		require.ErrorIs(t, s.Put(t.Context(), b), lifecycle.ErrChanged)
	}
	got, err := s.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "why", got.Reason)
	b.Revision, b.Host = 2, "there"
	put(t, s, b)
	got, err = s.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, "another", got.Reason)
	assert.Equal(t, "there", got.Host)
}

func oneWinner(t *testing.T, s lifecycle.Store) {
	put(t, s, record("a", 0))
	var (
		won     atomic.Int32
		writing sync.WaitGroup
	)
	for range 8 {
		writing.Go(func() {
			b := record("a", 0)
			b.Revision = 2
			if err := s.Put(t.Context(), b); err == nil {
				won.Add(1)
			} else if !errors.Is(err, lifecycle.ErrChanged) {
				assert.NoError(t, err)
			}
		})
	}
	writing.Wait()
	assert.EqualValues(t, 1, won.Load())
}

func hosts(t *testing.T, s lifecycle.Store) {
	there, over := record("there", 1), record("over", 2)
	there.Host, over.State = "there", lifecycle.Lost
	put(t, s, record("here", 0))
	put(t, s, there)
	put(t, s, over)
	for host, want := range map[string][]string{"here": {"here"}, "there": {"there"}, "nowhere": nil} {
		live, err := s.Live(t.Context(), host)
		require.NoError(t, err)
		assert.Equal(t, want, ids(live), host)
	}
}

func list(t *testing.T, s lifecycle.Store) {
	other, over := record("other", 9), record("over", 3)
	other.Project, over.State = "q", lifecycle.Deleted
	for _, b := range []*lifecycle.Sandbox{record("a", 1), record("b", 1), record("c", 2), over, other} {
		put(t, s, b)
	}
	for _, c := range []struct {
		over  bool
		limit int
		want  []string
	}{{false, 9, []string{"c", "b", "a"}}, {true, 9, []string{"over", "c", "b", "a"}}, {true, 2, []string{"over", "c"}}} {
		page, err := s.List(t.Context(), "p", time.Time{}, "", c.over, c.limit)
		require.NoError(t, err)
		assert.Equal(t, c.want, ids(page))
	}
	rest, err := s.List(t.Context(), "p", record("b", 1).Created, "b", true, 9)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, ids(rest))
}

func forget(t *testing.T, s lifecycle.Store) {
	old, fresh, live := record("old", 0), record("fresh", 100), record("live", 0)
	old.State, fresh.State = lifecycle.Failed, lifecycle.Deleted
	for _, b := range []*lifecycle.Sandbox{old, fresh, live} {
		put(t, s, b)
	}
	require.NoError(t, s.Forget(t.Context(), record("", 50).Created))
	page, err := s.List(t.Context(), "p", time.Time{}, "", true, 9)
	require.NoError(t, err)
	assert.Equal(t, []string{"fresh", "live"}, ids(page))
}
