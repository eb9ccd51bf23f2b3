package redis

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittrial"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/redistest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// fleet are replicas that call one provider, in simulated time: the clock of Redis is the test's, and time stands still
// while a replica and Redis talk.
type fleet struct {
	*testing.T
	server   *redistest.Server
	request  limit.Request
	replicas map[string]*replica
	provider *provider
	calls    sync.WaitGroup
	// setBack is by how much the clock of Redis was set back.
	setBack atomic.Int64
}

// replica is one process.
type replica struct {
	limit.Limiter
	limiter *Limiter // nil of one in memory
	client  *redisclient.Client
	// alive ends when the process is killed.
	alive context.Context
	kill  context.CancelFunc
	// waited counts the callers that got their slot from an exchange, guarded by the limiter's lock.
	waited int
}

// provider admits calls up to its capacity, and answers 429 to others.
type provider struct {
	mu       sync.Mutex
	capacity int
	inFlight int
	most     int // in flight since the last look
	served   int
	refused  int
	lost     int // with a killed replica
}

func newFleet(t *testing.T, server *redistest.Server, r limit.Request, capacity int, names ...string) *fleet {
	f := &fleet{T: t, server: server, request: r, replicas: map[string]*replica{}, provider: &provider{capacity: capacity}}
	for _, name := range names {
		f.join(name)
	}
	t.Cleanup(func() {
		for name := range f.replicas {
			f.leave(name)
		}
	})
	return f
}

func (f *fleet) join(name string) {
	options := f.server.Options()
	options.Prefix, options.Timeout = f.Name()+":", waittest.Bound
	r := &replica{client: redisclient.Open(options)}
	r.alive, r.kill = context.WithCancel(context.WithoutCancel(f.Context()))
	r.limiter = New(Config{Client: r.client, Replica: name, Replicas: 3, Logger: slog.New(slog.DiscardHandler), clock: f.clock})
	r.Limiter = r.limiter
	r.limiter.mu.Lock()
	p := r.limiter.pool(f.request.Key)
	p.gate.Acquired = func(inUse int) {
		if p.gate.Slots() > p.counted { // The exchange that brought them has not ended.
			r.waited++
		}
		p.acquired(inUse)
	}
	r.limiter.mu.Unlock()
	f.replicas[name] = r
}

// clock is the clock of Redis.
func (f *fleet) clock() time.Time { return time.Now().Add(-time.Duration(f.setBack.Load())) }

// leave shuts a replica down gracefully.
func (f *fleet) leave(name string) {
	r := f.replicas[name]
	delete(f.replicas, name)
	r.kill()
	if r.limiter == nil {
		return
	}
	assert.NoError(f, r.limiter.Close())
	assert.NoError(f, r.client.Close())
}

// kill ends a replica and its connections without a word to Redis.
func (f *fleet) kill(name string) {
	r := f.replicas[name]
	delete(f.replicas, name)
	r.kill()
	r.limiter.stop()
	r.limiter.done.Wait()
	assert.NoError(f, r.client.Close())
}

// load keeps as many callers busy with calls, each of which takes about 2 s, until the end of a time.
func (f *fleet) load(name string, callers int, during time.Duration) {
	r, end := f.replicas[name], time.Now().Add(during)
	for i := range callers {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		f.calls.Go(func() {
			for time.Now().Before(end) && r.alive.Err() == nil {
				f.call(r, fmt.Sprint("tenant", i%3), time.Second+time.Duration(random.Int64N(int64(2*time.Second))))
			}
		})
	}
}

// call makes one call of a caller: attempts until one is answered, as the pipeline of modelgw does.
func (f *fleet) call(r *replica, tenant string, takes time.Duration) {
	request := f.request
	request.Tenant = tenant
	for attempt := 0; ; attempt++ {
		request.Front = attempt > 0
		slot, err := r.Acquire(r.alive, request)
		if err != nil {
			assert.Error(f, r.alive.Err(), "only a killed replica fails: %v", err)
			return
		}
		answered := f.provider.attempt(r.alive, takes)
		switch {
		case !answered:
			r.Report(r.alive, request.Key, limit.Report{Outcome: limit.RateLimited, Subject: "m"})
		case attempt == 0:
			r.Report(r.alive, request.Key, limit.Report{Outcome: limit.Clean, Subject: "m"})
		default:
			r.Report(r.alive, request.Key, limit.Report{Outcome: limit.Retried, Subject: "m"})
		}
		slot.Release()
		if answered {
			return
		}
		time.Sleep(time.Second) // Retry-After
	}
}

// attempt reports whether the provider took the call.
func (p *provider) attempt(alive context.Context, takes time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight >= p.capacity {
		p.refused++
		p.mu.Unlock()
		time.Sleep(200 * time.Millisecond)
		p.mu.Lock()
		return false
	}
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	p.mu.Unlock()
	ended := time.NewTimer(takes)
	defer ended.Stop()
	select {
	case <-ended.C:
	case <-alive.Done():
	}
	p.mu.Lock()
	p.inFlight--
	if alive.Err() != nil {
		p.lost++
	} else {
		p.served++
	}
	return true
}

// look returns the counts since the last look.
func (p *provider) look() (served, refused, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	served, refused, most = p.served, p.refused, p.most
	p.served, p.refused, p.most = 0, 0, p.inFlight
	return served, refused, most
}

func (p *provider) set(capacity int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.capacity = capacity
}

// simulate runs f with a server of its own, in simulated time.
func simulate(t *testing.T, f func(t *testing.T, server *redistest.Server)) {
	t.Parallel()
	server := redistest.New(t)
	synctest.Test(t, func(t *testing.T) { f(t, server) })
}

const unlimited = 1 << 20

func fixedAt(n int) limit.Request { return limit.Request{Key: "k", Fixed: n} }

// No more than the limit are admitted in all replicas together while replicas join, leave and die, and no more than one
// in twenty waits for Redis.
func TestReplicasShareALimit(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(30), unlimited, "a", "b")
		f.load("a", 25, 5*time.Minute)
		f.load("b", 10, 3*time.Minute)
		time.Sleep(time.Minute)
		f.join("c")
		f.load("c", 40, 2*time.Minute)
		time.Sleep(time.Minute)
		f.kill("b")
		f.join("d")
		f.load("d", 20, time.Minute)
		f.calls.Wait()
		served, _, most := f.provider.look()
		assert.Equal(t, 30, most)
		assert.Greater(t, served, 3000)
		waited := 0
		for _, r := range f.replicas {
			waited += r.waited
		}
		assert.LessOrEqual(t, waited, served/20, "admissions that waited for Redis, of %d", served)
	})
}

// Slots go where callers wait: to the only busy replica all of them, and equally to busy ones.
func TestIdleSlotsGoWhereCallersWait(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(30), unlimited, "a", "b", "c")
		for _, name := range []string{"a", "b", "c"} {
			f.load(name, 30, 20*time.Second)
		}
		time.Sleep(15 * time.Second)
		for name, r := range f.replicas {
			assert.Equal(t, 10, r.here(t).InUse, name)
		}
		f.calls.Wait()
		f.load("a", 40, 10*time.Second)
		time.Sleep(time.Second)
		assert.Equal(t, 30, f.replicas["a"].here(t).InUse)
		f.calls.Wait()
	})
}

func (r *replica) here(t *testing.T) limit.Share { return r.pool(t).Here }

func (r *replica) pool(t *testing.T) limit.Pool {
	pools, err := r.limiter.Pools(t.Context())
	require.NoError(t, err)
	require.Len(t, pools, 1)
	return pools[0]
}

// A limit below the number of replicas starves none of them.
func TestAScarceSlotMakesTheRound(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(1), unlimited, "a", "b", "c")
		ends := make(chan string, 3)
		for name, r := range f.replicas {
			f.load(name, 3, 2*time.Minute)
			f.calls.Go(func() {
				time.Sleep(time.Minute)
				f.call(r, "late", time.Second)
				ends <- name
			})
		}
		f.calls.Wait()
		assert.Len(t, ends, 3)
		_, _, most := f.provider.look()
		assert.Equal(t, 1, most)
	})
}

// The slots of a killed replica are back within 5 s.
func TestAKilledReplicasSlotsComeBack(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(10), unlimited, "a", "b")
		f.load("a", 20, time.Minute)
		time.Sleep(10 * time.Second)
		f.kill("a")
		f.load("b", 20, 20*time.Second)
		time.Sleep(5 * time.Second)
		assert.Equal(t, 10, f.replicas["b"].here(t).InUse)
		f.calls.Wait()
	})
}

// While Redis is away each replica uses its lease and then its part of the limit; when it is back, without its data,
// the replicas share again what they know. No call is lost.
func TestAnOutageLosesNoCall(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(30), unlimited, "a", "b", "c")
		for name, callers := range map[string]int{"a": 40, "b": 2, "c": 2} {
			f.load(name, callers, 4*time.Minute)
		}
		time.Sleep(30 * time.Second)
		require.Greater(t, f.replicas["a"].here(t).InUse, 20)
		server.Stop()
		time.Sleep(10 * time.Second)
		assert.Equal(t, limit.Share{Slots: 10, InUse: 10, Waiting: 30}, f.replicas["a"].here(t), "its third")
		f.provider.look()
		time.Sleep(50 * time.Second)
		served, _, most := f.provider.look()
		assert.Positive(t, served)
		assert.LessOrEqual(t, most, 30)

		require.NoError(t, server.Run(context.Background()))
		time.Sleep(5 * time.Second)
		assert.Greater(t, f.replicas["a"].here(t).InUse, 20)
		require.NoError(t, f.replicas["a"].client.FlushAll(t.Context()).Err())
		time.Sleep(5 * time.Second)
		f.provider.look()
		time.Sleep(30 * time.Second)
		_, _, most = f.provider.look()
		assert.Equal(t, 30, most)
		p := f.replicas["c"].pool(t)
		assert.Equal(t, []int{30, 30}, []int{p.Limit, p.InUse})
		f.calls.Wait()
	})
}

// A process that starts while Redis is away has the part of the limit that its configuration says.
func TestAProcessStartsWithoutRedis(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		server.Stop()
		f := newFleet(t, server, fixedAt(30), unlimited, "a")
		f.load("a", 30, 20*time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, 10, f.replicas["a"].here(t).InUse)
		_, err := f.replicas["a"].limiter.SetMax(t.Context(), "k", 3)
		require.ErrorContains(t, err, "redis does not answer")
		require.ErrorContains(t, err, "was not changed")
		assert.Equal(t, 30, f.replicas["a"].pool(t).Limit, "a change that was refused has no effect")
		require.NoError(t, server.Run(context.Background()))
		time.Sleep(5 * time.Second)
		assert.Equal(t, 30, f.replicas["a"].here(t).InUse)
		f.calls.Wait()
	})
}

// A server that is restored from an old copy has old rules and no leases: the replicas know better.
func TestAnOldCopyIsReplaced(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(30), unlimited, "a", "b")
		f.load("a", 30, 40*time.Second)
		f.load("b", 30, 40*time.Second)
		time.Sleep(5 * time.Second)
		a := f.replicas["a"]
		key := a.client.Prefix + "limit:k"
		copied, err := a.client.Dump(t.Context(), key).Result()
		require.NoError(t, err)
		_, err = a.limiter.SetMax(t.Context(), "k", 20)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		f.provider.look()
		require.NoError(t, a.client.RestoreReplace(t.Context(), key, 0, copied).Err())
		time.Sleep(10 * time.Second)
		_, _, most := f.provider.look()
		assert.Equal(t, 20, most)
		assert.Equal(t, 20, f.replicas["b"].pool(t).Limit)
		f.calls.Wait()
	})
}

// What one replica meets counts for all: three replicas find the capacity of a provider, and follow it, as one process
// does that sees all calls.
func TestReplicasFindACapacityTogether(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		adaptive := limit.Request{Key: "k", Adaptive: &limit.Bounds{Min: 5, Start: 20, Max: 200, Cooldown: 15 * time.Second, DecreaseFactor: 0.8, ScaleUp: 0.05}}
		names := []string{"a", "b", "c"}
		play := func(f *fleet) (served, refused int) {
			for _, name := range names {
				f.load(name, 60, 6*time.Minute)
			}
			time.Sleep(2 * time.Minute)
			f.provider.set(40)
			time.Sleep(2 * time.Minute)
			f.provider.set(80)
			f.calls.Wait()
			served, refused, _ = f.provider.look()
			return served, refused
		}
		one := newFleet(t, server, adaptive, 60)
		memory := &limit.Memory{}
		for _, name := range names {
			one.replicas[name] = &replica{Limiter: memory, alive: context.WithoutCancel(t.Context()), kill: func() {}}
		}
		servedByOne, refusedByOne := play(one)
		fleet := newFleet(t, server, adaptive, 60, names...)
		served, refused := play(fleet)
		t.Logf("one process: %d served, %d refused; three: %d served, %d refused", servedByOne, refusedByOne, served, refused)
		assert.GreaterOrEqual(t, served, servedByOne*95/100)
		// The order of calls differs from run to run, and with it what the three learn first.
		assert.LessOrEqual(t, refused, refusedByOne+served/25)
		time.Sleep(time.Second) // Simulated: all replicas learn in their next exchange what the last calls changed.
		p := fleet.replicas["b"].pool(t)
		require.NotEmpty(t, p.History)
		assert.Equal(t, limit.SlowStart, p.History[0].Reason)
		for _, name := range names {
			assert.Equal(t, p.History, fleet.replicas[name].pool(t).History)
		}
	})
}

// A pool that has long had no caller costs no exchange, and its slots are free for others.
func TestAQuietPoolHoldsNothing(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(3), unlimited, "a", "b")
		f.load("a", 1, time.Second)
		f.calls.Wait()
		time.Sleep(2 * quietAfter)
		a := f.replicas["a"].limiter
		assert.Empty(t, a.chosen(func(p *pool) bool { return !p.quiet }))
		assert.Equal(t, limit.Share{}, f.replicas["b"].here(t), "another replica knows the pool")
		f.load("a", 3, 10*time.Second)
		time.Sleep(5 * time.Second)
		assert.Equal(t, 3, f.replicas["a"].here(t).InUse)
		f.calls.Wait()
	})
}

// While the provider refuses all calls, the whole fleet makes one trial call each second; afterwards all are served
// again.
func TestReplicasAskTogether(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, limittrial.Probing(), 60, "a", "b", "c")
		for name := range f.replicas {
			f.load(name, 60, 3*time.Minute)
		}
		time.Sleep(time.Minute)
		f.provider.set(0)
		time.Sleep(10 * time.Second)
		f.provider.look()
		time.Sleep(50 * time.Second)
		served, refused, _ := f.provider.look()
		assert.Zero(t, served)
		assert.Greater(t, refused, 20)
		assert.LessOrEqual(t, refused, 50)
		f.provider.set(60)
		time.Sleep(30 * time.Second)
		_, _, most := f.provider.look()
		assert.Greater(t, most, 40)
		f.calls.Wait()
	})
}
