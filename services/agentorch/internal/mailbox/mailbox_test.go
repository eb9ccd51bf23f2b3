package mailbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
)

// store is the inbox of one journal; the other methods of a store are not called.
type store struct {
	journal.Store
	journal.Hub

	mu     sync.Mutex
	posted []string
	taken  int64
	// errs are what Post fails with, one after the other.
	errs []error
}

func (s *store) Subscribe(name string) *journal.Subscription { return s.Hub.Subscribe(name) }

func (s *store) Post(_ context.Context, _ string, c journal.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return err
	}
	s.posted = append(s.posted, c.ID)
	return nil
}

func (s *store) Taken(context.Context, string, string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken, nil
}

// take answers the command, as the owner of the journal does.
func (s *store) take(seq int64) {
	s.mu.Lock()
	s.taken = seq
	s.mu.Unlock()
	s.Notify("j")
}

// mail is a command that waits for its answer, which it writes to taken.
func mail(ended bool, woken func(), taken *int64) mailbox.Mail {
	return mailbox.Mail{
		Journal: "j", Command: journal.Command{ID: "cancel/k"}, RequestID: "k", Posted: woken,
		Read:   func(context.Context) (bool, error) { return ended, nil },
		Enough: func(seq int64) bool { *taken = seq; return seq > 0 },
	}
}

func TestACommandIsPostedOnceAndWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, taken, woken := &store{}, int64(0), 0
		time.AfterFunc(time.Minute, func() { s.take(7) })
		require.NoError(t, mailbox.Send(t.Context(), s, mail(false, func() { woken++ }, &taken)))
		assert.EqualValues(t, 7, taken)
		assert.Equal(t, []string{"cancel/k"}, s.posted)
		assert.Equal(t, 1, woken, "its owner is woken")
	})
}

func TestACommandThatAnotherProcessTookIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, taken := &store{}, int64(0)
		time.AfterFunc(time.Minute, func() { // No append of that process wakes anybody here.
			s.mu.Lock()
			defer s.mu.Unlock()
			s.taken = 7
		})
		began := time.Now()
		require.NoError(t, mailbox.Send(t.Context(), s, mail(false, func() {}, &taken)))
		assert.EqualValues(t, 7, taken)
		assert.LessOrEqual(t, time.Since(began), time.Minute+time.Second)
	})
}

func TestAJournalThatHasEndedGetsNoCommandAndAnswersAnOldOne(t *testing.T) {
	t.Parallel()
	s, taken := &store{taken: 5}, int64(0)
	require.NoError(t, mailbox.Send(t.Context(), s, mail(true, nil, &taken)))
	assert.EqualValues(t, 5, taken)
	assert.Empty(t, s.posted)
}

func TestAJournalThatEndsMeanwhileIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, taken, ended := &store{}, int64(0), false
		m := mail(false, func() {}, &taken)
		m.Read = func(context.Context) (bool, error) { return ended, nil }
		time.AfterFunc(time.Minute, func() {
			ended = true
			s.Notify("j")
		})
		require.NoError(t, mailbox.Send(t.Context(), s, m))
		assert.Zero(t, taken, "it did not take the command")
	})
}

func TestAStoreThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := rpcerr.StoreUnavailable("io", time.Second, "the disk fails")
		s, taken := &store{errs: []error{away, away}, taken: 3}, int64(0)
		require.NoError(t, mailbox.Send(t.Context(), s, mail(false, func() {}, &taken)))
		assert.EqualValues(t, 3, taken)
	})
}

func TestWhyACommandCannotBePosted(t *testing.T) {
	t.Parallel()
	taken := int64(0)
	err := mailbox.Send(t.Context(), &store{errs: []error{journal.ErrReused}}, mail(false, nil, &taken))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)
	err = mailbox.Send(t.Context(), &store{errs: []error{journal.ErrNotFound}}, mail(false, nil, &taken))
	assert.Equal(t, codes.NotFound, rpcerr.Code(err))
}

func TestAwaitLooksAgainAfterATimeAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, mailbox.Await(t.Context(), &store{}, "j", time.Second, func() (bool, error) { return time.Since(began) >= 3*time.Second, nil }))
		assert.Equal(t, 3*time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.ErrorIs(t, mailbox.Await(ctx, &store{}, "j", 0, func() (bool, error) { return false, nil }), context.DeadlineExceeded)
	})
}

func TestAWaitEndsWithItsTimeOrItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, looks, enough := &store{}, 0, false
		look := func() (bool, error) { looks++; return enough, nil }
		began := time.Now()
		require.NoError(t, mailbox.AwaitWithin(t.Context(), s, "j", time.Minute, look), "the time is over")
		assert.Equal(t, time.Minute, time.Since(began))
		assert.InDelta(t, 60, looks, 1, "each second, since appends of other replicas wake nothing here")
		looks = 0
		require.NoError(t, mailbox.AwaitWithin(t.Context(), s, "j", 0, look))
		assert.Equal(t, 1, looks, "it looks at least once")

		time.AfterFunc(time.Second, func() {
			enough = true
			s.Notify("j")
		})
		began = time.Now()
		require.NoError(t, mailbox.AwaitWithin(t.Context(), s, "j", time.Minute, look))
		assert.Equal(t, time.Second, time.Since(began))

		enough = false
		for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if errors.Is(end, context.Canceled) {
				cancel()
			}
			require.ErrorIs(t, mailbox.AwaitWithin(ctx, s, "j", time.Minute, look), end, "the caller has left")
			cancel()
		}
	})
}

func TestPatience(t *testing.T) {
	t.Parallel()
	assert.Equal(t, time.Minute, mailbox.Patience(nil))
	assert.Zero(t, mailbox.Patience(durationpb.New(0)))
	assert.Equal(t, 5*time.Second, mailbox.Patience(durationpb.New(5*time.Second)))
}
