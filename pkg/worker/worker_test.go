package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/pkg/worker/workertest"
)

func TestACallIsAnsweredAndAcceptedOnceItIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		assert.Equal(t, "ada", w.Register(lookup()).GetWorker())
		a := ask(t, t.Context(), h, call("k", func(c *worker.Call) { c.Timeout = time.Minute }))
		got := w.Call()
		assert.Equal(t, "k", got.GetKey())
		assert.Equal(t, "tool", got.GetKind())
		assert.Equal(t, "lookup", got.GetName())
		assert.Equal(t, payload, got.GetPayloadJson())
		assert.Equal(t, time.Minute, got.GetTimeout().AsDuration())
		w.Send(workertest.Result("k", `{"text":"42"}`))
		answer, err := a.wait()
		require.NoError(t, err)
		assert.JSONEq(t, `{"text":"42"}`, answer.PayloadJSON)

		w.Send(workertest.Result("k", `{"text":"other"}`)) // twice: it counts once, and nothing is said before it is durable
		synctest.Wait()
		h.Accept(effect.Key{Project: "default", ID: "k"})
		assert.Equal(t, "k", w.Next().GetAccepted().GetKey())
	})
}

func TestAFailureIsAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		w.Register(lookup())
		a := ask(t, t.Context(), h, call("k"))
		w.Send(workertest.Failure(w.Call().GetKey(), &workerv1.CallError{Type: "timeout", Message: "slow"}))
		answer, err := a.wait()
		require.NoError(t, err)
		assert.Equal(t, "timeout", answer.Error.GetType())

		a = ask(t, t.Context(), h, call("l"))
		w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Result{Result: &workerv1.CallResult{Key: w.Call().GetKey()}}})
		answer, err = a.wait()
		require.NoError(t, err)
		assert.Contains(t, answer.Error.GetMessage(), "without an outcome")
	})
}

func TestAPoolSharesCallsWithinItsBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		one, two := workertest.Connect(t, h), workertest.Connect(t, h)
		one.Register(lookup())
		two.Register(lookup(inFlight(2)))
		var all []*asked
		for _, id := range []string{"a", "b", "c", "d"} {
			all = append(all, ask(t, t.Context(), h, call(id)))
			synctest.Wait()
		}
		assert.Equal(t, "a", two.Call().GetKey(), "the freest first")
		keys := []string{one.Call().GetKey(), two.Call().GetKey()}
		assert.ElementsMatch(t, []string{"b", "c"}, keys)
		synctest.Wait()
		assert.False(t, all[3].isOver(), "no slot is free")
		time.Sleep(3 * time.Second)
		two.Send(workertest.Result("a", `{}`))
		assert.Equal(t, "d", two.Call().GetKey())
		two.Send(workertest.Result("d", `{}`))
		answer, err := all[3].wait()
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, answer.Queued)
		for _, key := range []string{"b", "c"} {
			for i, w := range []*workertest.Worker{one, two} {
				if keys[i] == key {
					w.Send(workertest.Result(key, `{}`))
				}
			}
		}
		for _, a := range all {
			_, err := a.wait()
			require.NoError(t, err)
		}
	})
}

func TestWithoutAWorkerTheCallerIsToldToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		_, err := h.Do(t.Context(), call("k"))
		require.Equal(t, errorsv1.ErrorReason_ERROR_REASON_WORKER_UNAVAILABLE, rpcerr.Reason(err))
		assert.Equal(t, codes.ResourceExhausted, rpcerr.Code(err))
		assert.Contains(t, err.Error(), "waiting for a worker of tool lookup")
		assert.Equal(t, time.Second, rpcerr.RetryAfter(err))
		assert.True(t, effect.IsNotStarted(err))

		a := ask(t, t.Context(), h, call("k"))
		synctest.Wait()
		w := workertest.Connect(t, h)
		w.Register(lookup())
		w.Send(workertest.Result(w.Call().GetKey(), `{}`))
		_, err = a.wait()
		require.NoError(t, err, "a worker that comes in time is given the call")

		w.Break()
		_, err = h.Do(t.Context(), call("l"))
		assert.True(t, effect.IsNotStarted(err))
		assert.NotNil(t, h.Find("default", "tool", "lookup"), "it may come back")
		time.Sleep(10 * time.Minute)
		_, err = h.Do(t.Context(), call("l"))
		assert.Equal(t, codes.FailedPrecondition, rpcerr.Code(err))
		assert.Contains(t, err.Error(), "no worker of tool lookup has been connected for 10m0s")
		assert.False(t, effect.IsNotStarted(err), "it is final")
		assert.Nil(t, h.Find("default", "tool", "lookup"))
		assert.Empty(t, h.List("default", "tool"))
	})
}

func TestALostCallThatMayBeRepeatedIsGivenToAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		w.Register(lookup())
		a := ask(t, t.Context(), h, call("k", retried))
		w.Call()
		w.Break()
		next := workertest.Connect(t, h)
		next.Register(lookup())
		assert.Equal(t, "k", next.Call().GetKey())
		next.Send(workertest.Result("k", `{}`))
		_, err := a.wait()
		require.NoError(t, err)

		a = ask(t, t.Context(), h, call("deadly", retried))
		for range 5 {
			next.Call()
			next.Break()
			synctest.Wait()
			next = workertest.Connect(t, h)
			next.Register(lookup())
		}
		_, err = a.wait()
		require.ErrorIs(t, err, worker.ErrUnknown, "a call that kills every worker is given up")
	})
}

func TestALostCallThatMustNotBeRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		w.Register(lookup())
		a, b := ask(t, t.Context(), h, call("back")), ask(t, t.Context(), h, call("gone"))
		got := w.Call().GetKey()
		w.Send(workertest.Result(got, `{}`))
		other := w.Call().GetKey()
		if got == "gone" {
			a, b = b, a
		}
		_, err := a.wait()
		require.NoError(t, err)

		w.Break()
		again := workertest.Connect(t, h)
		assert.Empty(t, again.Register(lookup(unfinished(other))).GetForget())
		again.Send(workertest.Result(other, `{"text":"late"}`))
		answer, err := b.wait()
		require.NoError(t, err, "its worker came back with it")
		assert.JSONEq(t, `{"text":"late"}`, answer.PayloadJSON)

		c := ask(t, t.Context(), h, call("never"))
		again.Call()
		again.Break()
		workertest.Connect(t, h).Register(lookup())
		begun := time.Now()
		_, err = c.wait()
		require.ErrorIs(t, err, worker.ErrUnknown)
		assert.Equal(t, 30*time.Second, time.Since(begun))
	})
}

// The server was killed while workers had calls. They come back before those who ask, or after them.
func TestAWorkerComesBackToANewServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, ledger := newHost(t)
		claim(t, ledger, "sent")
		claim(t, ledger, "at work")
		require.NoError(t, ledger.Finish(t.Context(), claim(t, ledger, "old"), "me", effect.Outcome{State: effect.Done}))
		early := ask(t, t.Context(), h, call("early", lost))
		synctest.Wait()
		w := workertest.Connect(t, h)
		forget := w.Register(lookup(unfinished("sent", "at work", "old", "never heard of", "early"), inFlight(5))).GetForget()
		assert.ElementsMatch(t, []string{"old", "never heard of"}, forget)
		w.Send(workertest.Result("sent", `{"text":"sent"}`))
		w.Send(workertest.Result("early", `{"text":"early"}`))
		answer, err := early.wait()
		require.NoError(t, err)
		assert.JSONEq(t, `{"text":"early"}`, answer.PayloadJSON)

		answer, err = h.Do(t.Context(), call("sent", lost))
		require.NoError(t, err, "its result was there before anyone asked")
		assert.JSONEq(t, `{"text":"sent"}`, answer.PayloadJSON)
		a := ask(t, t.Context(), h, call("at work", lost))
		synctest.Wait()
		w.Send(workertest.Result("at work", `{"text":"at work"}`))
		_, err = a.wait()
		require.NoError(t, err)
		for _, id := range []string{"early", "sent", "at work"} {
			h.Accept(effect.Key{Project: "default", ID: id})
			assert.Equal(t, id, w.Next().GetAccepted().GetKey(), "it was not given a call again in between")
		}

		begun := time.Now()
		_, err = h.Do(t.Context(), call("nobody's", lost))
		require.ErrorIs(t, err, worker.ErrUnknown)
		assert.Equal(t, 30*time.Second, time.Since(begun))
	})
}

func TestProgressOfACallIsToldInOneLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		w.Register(lookup())
		var said []string
		a := ask(t, t.Context(), h, call("k", func(c *worker.Call) { c.Progress = func(message string) { said = append(said, message) } }))
		key := w.Call().GetKey()
		w.Send(workertest.Progress(key, "half\x1b[2J\nway"))
		w.Send(workertest.Progress(key, strings.Repeat("é", 1_000)))
		w.Send(workertest.Progress("another", "?"))
		w.Send(workertest.Result(key, `{}`))
		_, err := a.wait()
		require.NoError(t, err)
		require.Len(t, said, 2)
		assert.Equal(t, "half [2J way", said[0])
		assert.Equal(t, strings.Repeat("é", 200)+"…", said[1])
	})
}

func TestWhatWorkersServeIsToldAsTheyComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		watch := h.Served().Watch(func(of worker.Offered) bool { return of.Kind == "tool" })
		defer watch.Close()
		one, two := workertest.Connect(t, h), workertest.Connect(t, h)
		one.Register(lookup(func(r *workerv1.Register) { r.Offers = append(r.Offers, &workerv1.Offer{Kind: "scorer", Name: "s"}) }))
		synctest.Wait()
		news := watch.Next()
		require.Len(t, news, 1)
		assert.Equal(t, worker.Offered{Project: "default", Kind: "tool", Name: "lookup"}, news[0].Key)
		assert.False(t, news[0].Gone)
		two.Register(lookup())
		one.Break()
		synctest.Wait()
		for _, n := range watch.Next() {
			assert.False(t, n.Gone, "another one serves it still")
		}
		two.Break()
		synctest.Wait()
		news = watch.Next()
		require.Len(t, news, 1)
		assert.True(t, news[0].Gone)
	})
}

// A worker need not wait for the answer to its registration before it sends the results that it kept, nor read which of
// them to forget.
func TestKeptResultsMayFollowTheRegistrationAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, ledger := newHost(t)
		claim(t, ledger, "wanted")
		kept := []string{"wanted"}
		for i := range 2_000 {
			kept = append(kept, fmt.Sprint("old-", i))
		}
		w := workertest.Connect(t, h)
		w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: lookup(unfinished(kept...))}})
		go func() {
			for _, key := range kept {
				w.Send(workertest.Result(key, `{"text":"42"}`))
			}
		}()
		require.Len(t, w.Next().GetRegistered().GetForget(), 2_000)
		for _, key := range kept[1:] {
			require.Equal(t, key, w.Next().GetAccepted().GetKey(), "what nobody wants may be forgotten")
		}
		answer, err := ask(t, t.Context(), h, call("wanted", lost)).wait()
		require.NoError(t, err)
		assert.JSONEq(t, `{"text":"42"}`, answer.PayloadJSON)
	})
}

func TestACallThatIsLeftIsRecalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		w.Register(lookup())
		ctx, cancel := context.WithCancelCause(t.Context())
		a := ask(t, ctx, h, call("k"))
		w.Call()
		cancel(nil)
		_, err := a.wait()
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, "k", w.Next().GetCancel().GetKey())
		w.Send(workertest.Result("k", `{}`))
		assert.Equal(t, "k", w.Next().GetAccepted().GetKey(), "a result that crosses with the cancel may be forgotten")

		ctx, cancel = context.WithCancelCause(t.Context())
		a = ask(t, ctx, h, call("l"))
		w.Call()
		cancel(effect.ErrDraining)
		_, err = a.wait()
		require.Error(t, err)
		b := ask(t, t.Context(), h, call("m"))
		assert.Equal(t, "m", w.Call().GetKey(), "a call that a successor will ask for is not recalled")
		w.Send(workertest.Result("m", `{}`))
		_, err = b.wait()
		require.NoError(t, err)
	})
}

func TestAWorkerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		w.Register(lookup())
		a := ask(t, t.Context(), h, call("k", func(c *worker.Call) { c.Timeout = 2 * time.Second }))
		w.Call()
		_, err := a.wait()
		require.ErrorIs(t, err, worker.ErrTimeout)
		assert.Equal(t, "k", w.Next().GetCancel().GetKey())
	})
}

func TestASilentWorkerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w, other := workertest.Connect(t, h), workertest.Connect(t, h)
		w.Register(lookup())
		a := ask(t, t.Context(), h, call("k", retried))
		w.Call()
		other.Register(lookup())
		begun := time.Now()
		assert.Equal(t, "k", other.Call().GetKey(), "the one that answers pings gets it")
		assert.InDelta(t, 30, time.Since(begun).Seconds(), 11)
		require.ErrorContains(t, w.Ended(), "no sign of life")
		other.Send(workertest.Result("k", `{}`))
		_, err := a.wait()
		require.NoError(t, err)
	})
}

func TestADrainingWorkerGetsNoMoreCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		w.Register(lookup(inFlight(9)))
		a := ask(t, t.Context(), h, call("k"))
		w.Call()
		w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Draining{Draining: &workerv1.Draining{}}})
		synctest.Wait()
		_, err := h.Do(t.Context(), call("l"))
		assert.True(t, effect.IsNotStarted(err))
		w.Send(workertest.Result("k", `{}`))
		_, err = a.wait()
		require.NoError(t, err)
		h.Accept(effect.Key{Project: "default", ID: "k"})
		require.NoError(t, w.Ended(), "it ends once nothing is left")
	})
}

func TestProjectsDoNotMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		theirs, ours := workertest.Connect(t, h), workertest.Connect(t, h)
		theirs.Register(lookup(func(r *workerv1.Register) {
			r.Project, r.Offers[0].ParametersJson = "projects/theirs", `{"type":"object"}`
		}))
		ours.Register(lookup())
		assert.Nil(t, h.Find("nobody's", "tool", "lookup"))
		assert.Len(t, h.List("theirs", "tool"), 1)
		a := ask(t, t.Context(), h, call("k"))
		ours.Send(workertest.Result(ours.Call().GetKey(), `{}`))
		_, err := a.wait()
		require.NoError(t, err)
	})
}

func TestAHostThatStopsLeavesCallsToItsSuccessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHost(t)
		w := workertest.Connect(t, h)
		w.Register(lookup())
		given := ask(t, t.Context(), h, call("given"))
		w.Call()
		waits := ask(t, t.Context(), h, call("waits"))
		synctest.Wait()
		go h.Close()
		assert.Equal(t, codes.Unavailable, rpcerr.Code(w.Ended()))
		_, err := given.wait()
		require.ErrorIs(t, err, effect.ErrDraining)
		_, err = waits.wait()
		assert.True(t, effect.IsNotStarted(err), "no worker has heard of it")
		_, err = h.Do(t.Context(), call("late"))
		assert.True(t, effect.IsNotStarted(err))
	})
}

// An unusable result fails the call. The worker receives the reason once that is durable; the operator reads the
// payload.
func TestAResultOfNoUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := worker.New(worker.Config{}, worker.Deps{Kinds: []worker.Kind{{Name: "tool"}}, Ledger: &memory.Ledger{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer h.Close()
		w := workertest.Connect(t, h)
		w.Register(lookup())
		a := ask(t, t.Context(), h, call("k", func(c *worker.Call) {
			c.Read = func(payload string) error { return worker.Unmarshal(payload, &workerv1.ToolResultPayload{}) }
		}))
		w.Send(workertest.Result(w.Call().GetKey(), `{"txt":"first`+strings.Repeat(".", 10_000)+`last"}`))
		_, err := a.wait()
		unusable, ok := errors.AsType[*worker.UnusableError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, "ada", unusable.Worker)
		const why = `it is not the JSON of ToolResultPayload: (line 1:2): unknown field "txt"`
		require.EqualError(t, unusable.Err, why)
		for _, told := range []string{"worker=ada", "kind=tool", "name=lookup", "unknown field", "first...", "...last"} {
			assert.Contains(t, log.String(), told)
		}
		assert.Less(t, log.Len(), 2_000, "only its edges")

		h.Accept(effect.Key{Project: "default", ID: "k"})
		assert.Equal(t, why, w.Next().GetAccepted().GetProblem())
	})
}
