package generate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func one(n int32) *modelv1.GenerateConfig { return &modelv1.GenerateConfig{MaxConnections: &n} }

func TestASleepingRetryHoldsNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(fails(503, 0), says("other"), says("retried"))
		first := g.call(one(1))
		done := make(chan error, 1)
		go func() {
			_, err := g.generate(t.Context(), first)
			done <- err
		}()
		synctest.Wait() // the first call sleeps now
		assert.Zero(t, g.pool(t).InUse)
		second := g.call(one(1))
		response, err := g.generate(t.Context(), second)
		require.NoError(t, err)
		assert.Equal(t, "other", response.Output.GetCompletion())
		assert.Zero(t, g.outcome(second).Queued)
		require.NoError(t, <-done)
		assert.Equal(t, 2, g.outcome(first).Attempts)
		assert.Equal(t, 3*time.Second, g.outcome(first).RetryWait)
	})
}

func TestARetryStandsBeforeTheOthersOfItsProject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(fails(503, 0), after(10*time.Second, says("holder")), after(time.Second, says("x")))
		order := make(chan string, 3)
		start := func(name string) {
			go func() {
				_, err := g.generate(t.Context(), g.call(one(1)))
				assert.NoError(t, err)
				order <- name
			}()
			synctest.Wait()
		}
		start("retried") // fails, sleeps for 3 s
		start("holder")  // takes the slot for 10 s
		start("waiting") // waits behind it; the retried call comes later than this one
		var got []string
		for range 3 {
			got = append(got, <-order)
		}
		assert.Equal(t, []string{"holder", "retried", "waiting"}, got)
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(fails(429, 40*time.Second), says("x"))
		c := g.call(nil)
		_, err := g.generate(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, 40*time.Second, g.outcome(c).RetryWait)
		require.Len(t, g.outcome(c).Failed, 1)
		assert.Equal(t, int32(429), g.outcome(c).Failed[0].GetStatus())
		assert.Equal(t, 40*time.Second, g.outcome(c).Failed[0].GetWait().AsDuration())
	})
}

func TestWhatTheCallerSeesAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	once := &modelv1.GenerateConfig{MaxRetries: new(int32(0))}
	for _, c := range []struct {
		fails  step
		code   codes.Code
		reason errorsv1.ErrorReason
	}{
		{fails(429, 7*time.Second), codes.ResourceExhausted, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RATE_LIMITED},
		{fails(503, 7*time.Second), codes.Unavailable, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE},
		{fails(404, 0), codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED},
		{
			func(context.Context, *provider.Request) (*provider.Response, error) {
				return nil, &provider.Error{Provider: "test", Status: 401, Auth: true, Message: "key sk-12 is wrong"}
			},
			codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_CREDENTIALS_REJECTED,
		},
		{
			func(context.Context, *provider.Request) (*provider.Response, error) {
				return nil, &provider.Error{Provider: "test", Invalid: true}
			},
			codes.Internal, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_RESPONSE_INVALID,
		},
	} {
		g := newRig(c.fails)
		_, err := g.generate(t.Context(), g.call(once))
		assert.Equal(t, c.code, rpcerr.Code(err), err)
		assert.Equal(t, c.reason, rpcerr.Reason(err), err)
		if c.code == codes.ResourceExhausted || c.code == codes.Unavailable {
			assert.Equal(t, 7*time.Second, rpcerr.RetryAfter(err))
		}
		assert.NotContains(t, err.Error(), "sk-12", "what an API says about a key may repeat a part of it")
	}
}

func TestAnAttemptThatHangsIsCutAndRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(time.Hour, says("late")), says("in time"))
		c := g.call(&modelv1.GenerateConfig{AttemptTimeout: new(2.5)})
		response, err := g.generate(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, "in time", response.Output.GetCompletion())
		assert.Equal(t, 2500*time.Millisecond, g.outcome(c).Working)
		assert.Contains(t, g.outcome(c).Failed[0].GetError(), "longer than 2.5s")
	})
}

// The bound of a whole call is looked at after each attempt that failed: none that runs is cut, and none begins after
// it.
func TestATimeoutEndsTheRetries(t *testing.T) {
	t.Parallel()
	for timeout, attempts := range map[float64]int{0: 1, 10: 1, 11: 2, 1000: 3} {
		synctest.Test(t, func(t *testing.T) {
			slow := after(10*time.Second, fails(503, 0))
			g := newRig(slow, slow, after(10*time.Second, says("x")))
			c := g.call(&modelv1.GenerateConfig{Timeout: &timeout})
			_, err := g.generate(t.Context(), c)
			assert.Equal(t, attempts, g.outcome(c).Attempts, "%v s", timeout)
			assert.Equal(t, attempts == 3, err == nil, "%v s: %v", timeout, err)
		})
	}
}

func TestAStreamThatFallsSilentIsCutAndRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dribbles := func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
			for range 5 { // slow, but alive
				time.Sleep(4 * time.Second)
				r.Progress()
			}
			return after(time.Hour, says("never"))(ctx, r)
		}
		g := newRig(dribbles, says("x"))
		c := g.call(&modelv1.GenerateConfig{StreamIdleTimeout: new(5.0)})
		_, err := g.generate(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, 2, g.outcome(c).Attempts)
		assert.Equal(t, 25*time.Second, g.outcome(c).Working)
		assert.Contains(t, g.outcome(c).Failed[0].GetError(), "nothing came for 5s")
	})
}

// slow is a sink whose reader takes an hour for each piece.
type slow struct{ heard }

func (s *slow) Delta(ctx context.Context, d *modelv1.GenerateDelta) {
	time.Sleep(time.Hour)
	s.heard.Delta(ctx, d)
}

// A stream that is not read is not silent: its watcher is slow, or there is no room for more of it.
func TestAStreamThatWaitsIsNotSilent(t *testing.T) {
	t.Parallel()
	piece := &modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Text{Text: "x"}}
	t.Run("for its watcher", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			g := newRig(func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
				r.Stream(piece)
				return after(4*time.Second, says("x"))(ctx, r)
			})
			c := g.call(&modelv1.GenerateConfig{StreamIdleTimeout: new(5.0)})
			c.Sink = &slow{}
			_, err := g.generate(t.Context(), c)
			require.NoError(t, err)
			assert.Equal(t, 1, g.outcome(c).Attempts)
		})
	})
	t.Run("for room", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ask := generate.Attempt(0, generate.NewAnswers(provider.DefaultMaxAnswerBytes, 1))
			holds := func(ctx context.Context, config *modelv1.GenerateConfig, then step) error {
				g := newRig(func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
					if err := r.Hold(ctx, 2<<20); err != nil {
						return nil, err
					}
					return then(ctx, r)
				})
				_, err := ask(ctx, g.call(config), &generate.Outcome{})
				return err
			}
			first := make(chan error, 1)
			go func() { first <- holds(t.Context(), nil, after(time.Hour, says("x"))) }()
			synctest.Wait()
			require.NoError(t, holds(t.Context(), &modelv1.GenerateConfig{StreamIdleTimeout: new(5.0)}, after(4*time.Second, says("x"))))
			require.NoError(t, <-first)
		})
	})
}

// A watcher that does not read keeps no attempt beyond its time.
func TestAnAttemptDoesNotOutlastItsTimeForItsWatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
			r.Stream(&modelv1.GenerateDelta{})
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		c := g.call(&modelv1.GenerateConfig{AttemptTimeout: new(5.0), MaxRetries: new(int32(0))})
		c.Sink = &stalled{}
		_, err := g.generate(t.Context(), c)
		require.ErrorContains(t, err, "the attempt took longer than 5s")
		assert.Equal(t, 5*time.Second, g.outcome(c).Working)
	})
}

// stalled is a sink whose reader takes no piece.
type stalled struct{ heard }

func (*stalled) Delta(ctx context.Context, _ *modelv1.GenerateDelta) { <-ctx.Done() }

func TestACallEndsWithItsContextWhereverItIs(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"in an attempt":    {after(time.Hour, says("x"))},
		"between attempts": {fails(503, time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newRig(steps...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := g.generate(ctx, g.call(nil))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Zero(t, g.pool(t).InUse)
			})
		})
	}
}

// An attempt that ends with its call is followed by none, and is not told as one that is.
func TestAnAttemptThatEndsWithItsCallIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	g := newRig(func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
		leave()
		return fails(503, 0)(ctx, r)
	})
	c := g.call(nil)
	c.OnRetry = func(*modelv1.FailedAttempt) { assert.Fail(t, "a retry is told") }
	_, err := g.generate(ctx, c)
	require.Error(t, err)
	assert.Empty(t, g.outcome(c).Failed)
}

func TestTimeIsAccountedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(5*time.Second, says("holder")), after(time.Second, fails(500, 0)), after(2*time.Second, says("x")))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := g.generate(t.Context(), g.call(one(1)))
			assert.NoError(t, err)
		}()
		synctest.Wait()
		c := g.call(one(1))
		g.outcome(c).Start = time.Now()
		_, err := g.generate(t.Context(), c)
		require.NoError(t, err)
		<-done
		timing := g.outcome(c).Timing()
		assert.Equal(t, 5*time.Second, timing.GetQueued().AsDuration())
		assert.Equal(t, 3*time.Second, timing.GetRetryWait().AsDuration())
		assert.Equal(t, 3*time.Second, timing.GetWorking().AsDuration())
		assert.Equal(t, int32(2), timing.GetAttempts())
		assert.Equal(t, 11*time.Second, timing.GetEndTime().AsTime().Sub(timing.GetStartTime().AsTime()))
	})
}

func cached() *modelv1.GenerateConfig {
	return &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true}}
}

// An answer is served to the end of its life, that moment included: one of 0 s to calls of the same moment.
func TestHowLongAnAnswerIsKept(t *testing.T) {
	t.Parallel()
	for expiry, want := range map[string]map[time.Duration]bool{
		"0s":  {0: true, time.Nanosecond: false},
		"2s":  {2 * time.Second: true, 2*time.Second + 1: false},
		"-1s": {0: false},
	} {
		for age, kept := range want {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(says("x"))
				for _, wait := range []time.Duration{0, age} {
					time.Sleep(wait)
					cache := &modelv1.CacheSetting{Enabled: true, Policy: &modelv1.CachePolicy{Expiry: expiry}}
					_, err := g.generate(t.Context(), g.call(&modelv1.GenerateConfig{Cache: cache}))
					require.NoError(t, err)
				}
				assert.Equal(t, kept, g.provider.count() == 1, "%s, after %s", expiry, age)
			})
		}
	}
}

func TestEqualCachedCallsInFlightShareOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(10*time.Second, says("shared")))
		answers := make(chan *provider.Response, 3)
		uses := make(chan modelv1.CacheUse, 3)
		for range 3 {
			go func() {
				c := g.call(cached())
				response, err := g.generate(t.Context(), c)
				assert.NoError(t, err)
				answers <- response
				uses <- g.outcome(c).Cache
			}()
		}
		counts := map[modelv1.CacheUse]int{}
		for range 3 {
			assert.Equal(t, "shared", (<-answers).Output.GetCompletion())
			counts[<-uses]++
		}
		assert.Equal(t, 1, g.provider.count())
		assert.Equal(t, map[modelv1.CacheUse]int{modelv1.CacheUse_CACHE_USE_WRITE: 1, modelv1.CacheUse_CACHE_USE_READ: 2}, counts)
	})
}

// What a client of an endpoint has sent follows rules that an evaluation's conversation does not.
func TestAClientsAnswerIsNotAnEvaluations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(says("client's"), says("evaluation's"))
		for _, client := range []bool{true, false, true} {
			c := g.call(cached())
			c.Client = client
			response, err := g.generate(t.Context(), c)
			require.NoError(t, err)
			assert.Equal(t, map[bool]string{true: "client's", false: "evaluation's"}[client], response.Output.GetCompletion())
		}
		assert.Equal(t, 2, g.provider.count())
	})
}

func TestASharedAnswerIsEachCallersOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(time.Second, func(context.Context, *provider.Request) (*provider.Response, error) {
			return &provider.Response{Output: chattest.Says("m", "shared"), Warnings: make([]string, 1, 4)}, nil
		}))
		answers := make(chan *provider.Response, 3)
		for i := range cap(answers) {
			go func() {
				response, err := g.generate(t.Context(), g.call(cached()))
				if assert.NoError(t, err) {
					response.Output.Completion = fmt.Sprint(i)
					response.Warnings = append(response.Warnings, fmt.Sprint(i))
				}
				answers <- response
			}()
		}
		for range cap(answers) {
			response := <-answers
			assert.Equal(t, []string{"", response.Output.GetCompletion()}, response.Warnings)
		}
	})
}

func TestCallsWithoutAPolicyAreAlwaysTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(time.Second, says("x")))
		done := make(chan struct{})
		for range 2 {
			go func() {
				_, err := g.generate(t.Context(), g.call(nil))
				assert.NoError(t, err)
				done <- struct{}{}
			}()
		}
		<-done
		<-done
		assert.Equal(t, 2, g.provider.count())
	})
}

func TestASharedCallOutlivesItsFirstCallerAndEndsWithItsLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(10*time.Second, says("shared")))
		leave := make([]context.CancelFunc, 2)
		results := make(chan error, 3)
		for i := range leave {
			ctx, cancel := context.WithCancel(t.Context())
			leave[i] = cancel
			go func() {
				_, err := g.generate(ctx, g.call(cached()))
				results <- err
			}()
			synctest.Wait()
		}
		leave[0]()
		require.ErrorIs(t, <-results, context.Canceled)
		assert.Equal(t, 1, g.pool(t).InUse, "the call goes on for the second caller")
		leave[1]()
		require.ErrorIs(t, <-results, context.Canceled)
		synctest.Wait()
		assert.Zero(t, g.pool(t).InUse, "nobody waits any more")
		_, err := g.generate(t.Context(), g.call(cached()))
		require.NoError(t, err)
		assert.Equal(t, 2, g.provider.count())
	})
}

// meddled is a store in which something happens right after somebody has looked.
type meddled struct {
	cache.Cache
	looked func()
}

func (m *meddled) Get(ctx context.Context, key cache.Key) ([]byte, bool, error) {
	value, ok, err := m.Cache.Get(ctx, key)
	if meddle := m.looked; meddle != nil {
		m.looked = nil
		meddle()
	}
	return value, ok, err
}

// Stages share a call: what each finds out is in the outcome.
func TestNoStageChangesACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(fails(503, 0), says("x"))
		c := g.call(cached())
		before, config := *c, proto.CloneOf(c.Config)
		_, err := g.generate(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, before, *c)
		assert.True(t, proto.Equal(config, c.Config))
		assert.Equal(t, 2, g.outcome(c).Attempts)
		assert.Len(t, g.outcome(c).Failed, 1)
		assert.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, g.outcome(c).Cache)
	})
}

func TestAnAnswerThatComesBetweenLookingAndCallingIsTaken(t *testing.T) {
	t.Parallel()
	g := newRig(says("x"))
	store := &meddled{Cache: cache.NewMemory(1 << 20)}
	generated := generate.NewCache(store, slog.New(slog.DiscardHandler)).Stage(generate.Attempt(0, generate.NewAnswers(provider.DefaultMaxAnswerBytes, provider.DefaultMaxAnswerBytes)))
	store.looked = func() {
		_, err := generated(t.Context(), g.call(cached()), &generate.Outcome{})
		assert.NoError(t, err)
	}
	c := g.call(cached())
	response, err := generated(t.Context(), c, g.outcome(c))
	require.NoError(t, err)
	assert.Equal(t, "x", response.Output.GetCompletion())
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, g.outcome(c).Cache)
	assert.Equal(t, 1, g.provider.count())
}

// unreliable is a store that fails while it has a failure.
type unreliable struct {
	cache.Cache
	get, put error
}

func (u *unreliable) Get(ctx context.Context, key cache.Key) ([]byte, bool, error) {
	if u.get != nil {
		return nil, false, u.get
	}
	return u.Cache.Get(ctx, key)
}

func (u *unreliable) Put(ctx context.Context, key cache.Key, value []byte, expires time.Time) error {
	if u.put != nil {
		return u.put
	}
	return u.Cache.Put(ctx, key, value, expires)
}

// A full disk does not fill the log: each outage of the store is logged once, and no call fails with it.
func TestAnOutageOfTheStoreIsLoggedOnce(t *testing.T) {
	t.Parallel()
	g := newRig(says("x"))
	store, log := &unreliable{Cache: cache.NewMemory(1 << 20)}, &strings.Builder{}
	generated := generate.NewCache(store, slog.New(slog.NewTextHandler(log, nil))).Stage(generate.Attempt(0, generate.NewAnswers(provider.DefaultMaxAnswerBytes, provider.DefaultMaxAnswerBytes)))
	calls := func(n int) (lines int) {
		t.Helper()
		log.Reset()
		for range n {
			c := g.call(cached())
			c.Conversation.Messages = []*modelv1.ChatMessage{chat.User(fmt.Sprint(g.provider.count()))}
			_, err := generated(t.Context(), c, g.outcome(c))
			require.NoError(t, err)
		}
		return strings.Count(log.String(), "\n")
	}
	full := errors.New("the disk is full")
	for range 2 {
		assert.Zero(t, calls(1))
		store.put = full
		assert.Equal(t, 1, calls(3))
		assert.Contains(t, log.String(), "cannot be written", log.String())
		assert.Contains(t, log.String(), full.Error())
		store.put = cache.ErrNotKept
		assert.Zero(t, calls(1))
		store.put = full
		assert.Zero(t, calls(1), "nothing was written in between")
		store.get = full
		assert.Equal(t, 1, calls(3))
		assert.Contains(t, log.String(), "cannot be read")
		store.get, store.put = nil, nil
	}
}

// An answer that the store does not keep is not said to be in it.
func TestAnAnswerWithoutRoomIsNotSaidToBeKept(t *testing.T) {
	t.Parallel()
	g := newRig(says("x"))
	generated := generate.NewCache(cache.NewMemory(1), slog.New(slog.DiscardHandler)).Stage(generate.Attempt(0, generate.NewAnswers(provider.DefaultMaxAnswerBytes, provider.DefaultMaxAnswerBytes)))
	c := g.call(cached())
	_, err := generated(t.Context(), c, g.outcome(c))
	require.NoError(t, err)
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_UNSPECIFIED, g.outcome(c).Cache)
}

func TestWhoSharesACallKeepsTheirOwnDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(10*time.Second, says("shared")))
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := make(chan error, 1)
		go func() {
			_, err := g.generate(hurried, g.call(cached()))
			first <- err
		}()
		synctest.Wait()
		response, err := g.generate(t.Context(), g.call(cached()))
		require.NoError(t, err)
		assert.Equal(t, "shared", response.Output.GetCompletion())
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		assert.Equal(t, 1, g.provider.count())
	})
}

// What ends a call early, and who pays for it, are the caller's own: equal calls on other terms do not fail with it.
func TestOnlyCallsOnEqualTermsShareOne(t *testing.T) {
	t.Parallel()
	for name, differ := range map[string]func(g *rig, first *generate.Call){
		"retries": func(_ *rig, first *generate.Call) { first.Config.MaxRetries = new(int32(0)) },
		"attempts": func(_ *rig, first *generate.Call) {
			first.Config.MaxRetries, first.Config.AttemptTimeout = new(int32(0)), new(0.5)
		},
		"budgets": func(g *rig, first *generate.Call) {
			first.Scopes, first.UnreadTokens = []string{"projects/p/evals/e"}, 90
			g.bound(t, first.Scopes[0], budget.Bounds{MaxTokens: new(int64(100))})
			settle, err := g.budgets.Reserve(t.Context(), first.Scopes, func() int64 { return 90 })
			require.NoError(t, err)
			time.AfterFunc(time.Second, func() { settle(&modelv1.ModelUsage{TotalTokens: 100}) })
		},
		"followers": func(_ *rig, first *generate.Call) { first.Committed, first.Sink = true, &heard{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				breaks := func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
					if r.Stream != nil {
						r.Stream(&modelv1.GenerateDelta{})
					}
					return after(time.Second, fails(503, 0))(ctx, r)
				}
				g := newRig(breaks, breaks, says("x"))
				first := g.call(cached())
				differ(g, first)
				failed := make(chan error, 1)
				go func() {
					_, err := g.generate(t.Context(), first)
					failed <- err
				}()
				synctest.Wait()
				_, err := g.generate(t.Context(), g.call(cached()))
				require.NoError(t, err)
				require.Error(t, <-failed)
			})
		})
	}
}

func TestASharedFailureReachesEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(time.Second, fails(400, 0)), says("later"))
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := g.generate(t.Context(), g.call(cached()))
				results <- err
			}()
		}
		for range 2 {
			assert.True(t, rpcerr.Is(<-results, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_REJECTED))
		}
		_, err := g.generate(t.Context(), g.call(cached()))
		require.NoError(t, err, "a failure is not kept")
	})
}

// asleep is the reported state of a call's sleep: the number of failures, and whether it sleeps now.
type asleep struct {
	failures int
	now      bool
}

// told is the state that was reported to a caller.
type told struct {
	mu   sync.Mutex
	last asleep
}

func (a *told) tell(failed *modelv1.FailedAttempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last.now = failed != nil; a.last.now {
		a.last.failures++
	}
}

func (a *told) got() asleep {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

func TestEverybodyAboardIsToldOfRetriesAndNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(fails(503, 10*time.Second), fails(503, 10*time.Second), fails(503, 10*time.Second), after(time.Second, says("x")))
		results := make(chan error, 3)
		join := func(ctx context.Context) *told {
			a, c := &told{}, g.call(cached())
			c.OnRetry = a.tell
			go func() {
				_, err := g.generate(ctx, c)
				results <- err
			}()
			synctest.Wait()
			return a
		}
		hurried, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		leader, waiter := join(hurried), join(t.Context())
		assert.Equal(t, asleep{1, true}, leader.got())
		assert.Equal(t, asleep{1, true}, waiter.got())
		require.ErrorIs(t, <-results, context.DeadlineExceeded)
		assert.Equal(t, asleep{2, false}, leader.got(), "its note is taken away")
		assert.Equal(t, asleep{2, true}, waiter.got())
		late := join(t.Context())
		assert.Equal(t, asleep{2, true}, late.got())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []asleep{{2, false}, {3, true}, {3, true}}, []asleep{leader.got(), waiter.got(), late.got()})
		require.NoError(t, <-results)
		require.NoError(t, <-results)
		assert.Equal(t, []asleep{{2, false}, {3, false}, {3, false}}, []asleep{leader.got(), waiter.got(), late.got()})
	})
}

func TestASharedFailureTellsEverybodyWhatWasTried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(fails(503, 10*time.Second), after(time.Second, fails(400, 0)))
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		notes := make(chan generate.Outcome, 3)
		for _, ctx := range []context.Context{hurried, t.Context(), t.Context()} {
			go func() {
				c := g.call(cached())
				_, err := g.generate(ctx, c)
				assert.Error(t, err)
				notes <- *g.outcome(c)
			}()
			synctest.Wait()
		}
		for range cap(notes) {
			failed := (<-notes).Failed
			if assert.Len(t, failed, 1) {
				assert.Equal(t, "test answered 503", failed[0].GetError())
			}
		}
	})
}

func TestWhoLeftASharedCallHearsNothingMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
			for _, text := range []string{"a", "b"} {
				r.Stream(&modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Text{Text: text}})
				time.Sleep(10 * time.Second)
			}
			return says("ab")(ctx, r)
		})
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		leader, waited := &heard{}, make(chan error, 1)
		go func() {
			c := g.call(cached())
			c.Sink = leader
			_, err := g.generate(hurried, c)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}()
		synctest.Wait()
		go func() {
			_, err := g.generate(t.Context(), g.call(cached()))
			waited <- err
		}()
		require.NoError(t, <-waited)
		assert.Equal(t, []string{"started", "a"}, leader.events)
	})
}

func TestCloseEndsSharedCallsAndWaitsForThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		g := newRig(func(ctx context.Context, _ *provider.Request) (*provider.Response, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // a connection that is slow to go
			ended = true
			return nil, ctx.Err()
		})
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.generate(hurried, g.call(cached()))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		g.responses.Close()
		assert.True(t, ended, "of a call that nobody waits for any more")

		g = newRig(after(time.Hour, says("x")))
		failure := make(chan error, 1)
		go func() {
			_, err := g.generate(t.Context(), g.call(cached()))
			failure <- err
		}()
		synctest.Wait()
		g.responses.Close()
		assert.True(t, rpcerr.Is(<-failure, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE))
		_, err = g.generate(t.Context(), g.call(cached()))
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE))
		assert.Equal(t, 1, g.provider.count())
	})
}

func TestAPanicInASharedCallIsAFailure(t *testing.T) {
	t.Parallel()
	g := newRig(func(context.Context, *provider.Request) (*provider.Response, error) { panic("boom") })
	_, err := g.generate(t.Context(), g.call(cached()))
	assert.Equal(t, codes.Internal, rpcerr.Code(err))
}

func TestCallsWaitWhileReservationsFillABudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(after(10*time.Second, says("x")))
		g.bound(t, "projects/p/evals/e", budget.Bounds{MaxTokens: new(int64(100))})
		call := func() *generate.Call {
			c := g.call(&modelv1.GenerateConfig{MaxTokens: new(int64(90))})
			c.Scopes = []string{"projects/p/evals/e"}
			return c
		}
		start := time.Now()
		done := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := g.generate(t.Context(), call())
				done <- err
			}()
		}
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		assert.Equal(t, 20*time.Second, time.Since(start), "the second call waited until the first had settled")
		state := g.budgets.List("projects/p/evals/e", "", 9)[0]
		assert.Equal(t, []int64{10, 0}, []int64{state.Tokens, state.Reserved})
	})
}

func TestARateLimitShrinksThePoolAndACleanRoundGrowsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(fails(429, 0), says("x"))
		_, err := g.generate(t.Context(), g.call(nil))
		require.NoError(t, err)
		p := g.pool(t)
		assert.Equal(t, 15, p.Limit)
		require.Len(t, p.History, 1)
		assert.Equal(t, "test/m", p.History[0].Subject)
	})
}

// heard is a sink that records its calls.
type heard struct{ events []string }

func (h *heard) Started(context.Context, int, string) { h.events = append(h.events, "started") }
func (h *heard) Restart(context.Context, int, string) { h.events = append(h.events, "restart") }
func (h *heard) Delta(_ context.Context, d *modelv1.GenerateDelta) {
	h.events = append(h.events, d.GetText())
}

func TestOnlyARetryAfterAPieceIsARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		piece := func(text string, next step) step {
			return func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
				r.Stream(&modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Text{Text: text}})
				return next(ctx, r)
			}
		}
		g := newRig(fails(503, 0), piece("half", fails(503, 0)), piece("whole", says("whole")))
		c, sink := g.call(nil), &heard{}
		c.Sink = sink
		_, err := g.generate(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, []string{"started", "started", "half", "restart", "whole"}, sink.events)
	})
}
