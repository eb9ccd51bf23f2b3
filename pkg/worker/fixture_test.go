package worker_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/pkg/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newHost makes a host of tools and scorers. Every call of the fixture is claimed in its ledger.
func newHost(t *testing.T) (*worker.Host, *memory.Ledger) {
	t.Helper()
	ledger := &memory.Ledger{}
	h := worker.New(worker.Config{}, worker.Deps{Kinds: []worker.Kind{{Name: "tool"}, {Name: "scorer"}}, Ledger: ledger, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(h.Close)
	return h, ledger
}

// lookup is a registration that offers the tool `lookup`.
func lookup(change ...func(*workerv1.Register)) *workerv1.Register {
	r := &workerv1.Register{Worker: "ada", Offers: []*workerv1.Offer{{Kind: "tool", Name: "lookup"}}}
	for _, f := range change {
		f(r)
	}
	return r
}

func inFlight(n int32) func(*workerv1.Register) {
	return func(r *workerv1.Register) { r.MaxInFlight = n }
}

func unfinished(keys ...string) func(*workerv1.Register) {
	return func(r *workerv1.Register) { r.Unfinished = keys }
}

const payload = `{"argumentsJson":"{}"}`

// call is a call of `lookup`.
func call(id string, change ...func(*worker.Call)) worker.Call {
	c := worker.Call{Key: effect.Key{Project: "default", ID: id}, Kind: "tool", Name: "lookup", PayloadJSON: payload}
	for _, f := range change {
		f(&c)
	}
	return c
}

func retried(c *worker.Call) { c.OnUnknown = toolv1.OnUnknown_ON_UNKNOWN_RETRY }

func lost(c *worker.Call) { c.Lost = true }

// asked is a call on its way.
type asked struct {
	t      *testing.T
	done   chan struct{}
	answer worker.Answer
	err    error
}

// ask begins a call on a goroutine of its own.
func ask(t *testing.T, ctx context.Context, h *worker.Host, c worker.Call) *asked { //nolint:revive // The test comes first everywhere here.
	t.Helper()
	a := &asked{t: t, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.answer, a.err = h.Do(ctx, c)
	}()
	return a
}

func (a *asked) wait() (worker.Answer, error) {
	a.t.Helper()
	waittest.For(a.t, a.done, "the answer of the call")
	return a.answer, a.err
}

func (a *asked) isOver() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// claim puts a call into the ledger, as the effect around Do does.
func claim(t *testing.T, l effect.Ledger, id string) effect.Key {
	t.Helper()
	key := effect.Key{Project: "default", ID: id}
	_, started, err := l.Claim(t.Context(), key, effect.Hash{}, "me", 0)
	require.NoError(t, err)
	require.True(t, started)
	return key
}
