// Package mailbox sends commands to the owners of journals, through their inboxes, and waits until they are applied.
package mailbox

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Mail is a command on its way.
type Mail struct {
	// Journal is the name of the journal whose owner receives the command.
	Journal string
	Command journal.Command
	// RequestID is the id of the caller's request, for the error if it was used for another command.
	RequestID string
	// Read reads new events of the journal, and reports whether the journal has ended: an ended journal takes no
	// commands. It is called before the command is posted, and after each append.
	Read func(ctx context.Context) (ended bool, err error)
	// Posted is called when the command is durable, to wake the owner.
	Posted func()
	// Enough reports whether the sender may stop waiting, given what was read and the number of the event that recorded
	// the command, 0 while there is none.
	Enough func(taken int64) bool
	// Every is the interval after which the sender reads again without an append. Zero, and longer ones, are a second.
	Every time.Duration
}

// Send posts a command and returns when the journal has ended or Mail.Enough returns true. An ended journal is read,
// but gets no command. It is idempotent by the command's id. While the store is away Send retries until ctx ends: an
// operator's command matters most during a fault.
func Send(ctx context.Context, store journal.Store, m Mail) error {
	for backoff := (retry.Backoff{First: 100 * time.Millisecond, Max: time.Second}); ; {
		err := send(ctx, store, m)
		if !rpcerr.StoreAway(err) || backoff.Wait(ctx) != nil {
			return err
		}
	}
}

func send(ctx context.Context, store journal.Store, m Mail) error {
	wake := store.Subscribe(m.Journal)
	defer wake.Close()
	ended, err := m.Read(ctx)
	if err != nil {
		return err
	}
	if !ended {
		err := store.Post(ctx, m.Journal, m.Command)
		switch {
		case errors.Is(err, journal.ErrReused):
			return rpcerr.RequestIDReused(m.RequestID, "request id %q was used for another command; use a new one", m.RequestID)
		case err != nil:
			return journal.Gone(err, m.Journal)
		}
		m.Posted()
	}
	return await(ctx, wake, m.Every, func() (bool, error) {
		ended, err := m.Read(ctx)
		if err != nil {
			return false, err
		}
		// Taken is called after the read: if the journal had ended by then, its result is final.
		taken, err := store.Taken(ctx, m.Journal, m.Command.ID)
		if err != nil && !(ended && errors.Is(err, journal.ErrNotFound)) {
			return false, journal.Gone(err, m.Journal)
		}
		return m.Enough(taken) || ended, nil
	})
}

// defaultPatience is how long clients wait that set no time.
const defaultPatience = time.Minute

// Patience is how long a client wants to wait.
func Patience(timeout *durationpb.Duration) time.Duration {
	if timeout == nil {
		return defaultPatience
	}
	return timeout.AsDuration()
}

// Await calls look now, after each append to a journal and at that interval, until look reports that it has seen
// enough. An interval of zero, or a longer one, is a second.
func Await(ctx context.Context, store journal.Store, name string, every time.Duration, look func() (enough bool, err error)) error {
	wake := store.Subscribe(name)
	defer wake.Close()
	return await(ctx, wake, every, look)
}

// lookEvery is how often all that wait look without a wake-up: appends of other replicas wake nothing here.
const lookEvery = time.Second

// AwaitWithin is Await that also returns when that time is over, without an error. Look is called at least once.
func AwaitWithin(ctx context.Context, store journal.Store, name string, within time.Duration, look func() (enough bool, err error)) error {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := Await(waiting, store, name, lookEvery, look)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func await(ctx context.Context, wake *journal.Subscription, every time.Duration, look func() (enough bool, err error)) error {
	again := time.NewTicker(min(cmp.Or(every, lookEvery), lookEvery))
	defer again.Stop()
	for {
		if enough, err := look(); enough || err != nil {
			return err
		}
		select {
		case <-wake.C:
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
