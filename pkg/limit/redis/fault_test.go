package redis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittrial"
	"github.com/evalfleet/evalfleet/pkg/redistest"
)

// A pool that cannot be read, as one of a later version or a key of someone else, is divided locally. The others are
// shared as before, and so is that one when it can be read again.
func TestAnUnreadablePoolIsLocalAlone(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, r *replica, key string){
		"the rule is unknown": func(t *testing.T, r *replica, key string) {
			require.NoError(t, r.client.HSet(t.Context(), key, "rule", `{"later":{}}`, "version", 1000).Err())
		},
		"the leases are no JSON": func(t *testing.T, r *replica, key string) {
			require.NoError(t, r.client.HSet(t.Context(), key, "leases", "?").Err())
		},
		"the key is something else": func(t *testing.T, r *replica, key string) {
			require.NoError(t, r.client.Set(t.Context(), key, "?", 0).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, server *redistest.Server) {
				f := newFleet(t, server, fixedAt(30), unlimited, "a", "b")
				f.load("a", 40, time.Minute)
				other := newLoad(f, limittrial.Probing(), "other")
				other("a", 40, time.Minute)
				time.Sleep(10 * time.Second)
				a := f.replicas["a"]
				spoil(t, a, a.client.Prefix+"limit:other")
				time.Sleep(10 * time.Second)
				assert.Equal(t, 30, a.gateOf("k").InUse, "the readable one is shared")
				assert.Equal(t, a.gateOf("other").Slots, a.gateOf("other").InUse, "the other goes on")
				assert.Positive(t, a.gateOf("other").InUse)
				away, fault := a.outage("other")
				assert.False(t, away)
				require.Error(t, fault)
				require.NoError(t, a.client.Del(t.Context(), a.client.Prefix+"limit:other").Err())
				time.Sleep(5 * time.Second)
				_, fault = a.outage("other")
				require.NoError(t, fault)
				f.calls.Wait()
			})
		})
	}
}

// newLoad returns load of the fleet for another pool.
func newLoad(f *fleet, r limit.Request, key string) func(name string, callers int, during time.Duration) {
	r.Key = key
	return func(name string, callers int, during time.Duration) {
		to, end := f.replicas[name], time.Now().Add(during)
		for range callers {
			f.calls.Go(func() {
				for time.Now().Before(end) {
					slot, err := to.Acquire(to.alive, r)
					if err != nil {
						return
					}
					time.Sleep(2 * time.Second)
					to.Report(to.alive, key, limit.Report{Outcome: limit.Clean, Subject: "m"})
					slot.Release()
				}
			})
		}
	}
}

// outage returns whether Redis does not answer the replica, and why its answer for a pool cannot be used.
func (r *replica) outage(key string) (away bool, fault error) {
	r.limiter.mu.Lock()
	defer r.limiter.mu.Unlock()
	return r.limiter.away, r.limiter.pools[key].fault
}

// gateOf returns what a replica knows of its part of a pool, without an exchange.
func (r *replica) gateOf(key string) limit.Share {
	r.limiter.mu.Lock()
	defer r.limiter.mu.Unlock()
	g := &r.limiter.pools[key].gate
	return limit.Share{Slots: g.Slots(), InUse: g.InUse(), Waiting: g.Waiting()}
}

// Lists that come while another one asks Redis share its answer, so that they do not wait one after another for a Redis
// that hangs.
func TestListsDoNotWaitForEachOther(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(4), unlimited, "a")
		f.load("a", 1, time.Second)
		f.calls.Wait()
		a := f.replicas["a"]
		<-a.limiter.turn // As while an exchange hangs.
		lists := make(chan int, 20)
		for range cap(lists) {
			go func() {
				pools, err := a.limiter.Pools(t.Context())
				assert.NoError(t, err)
				lists <- len(pools)
			}()
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		pools, err := a.limiter.Pools(gone)
		require.NoError(t, err)
		assert.Len(t, pools, 1, "a caller that does not wait gets what is known")
		a.limiter.turn <- struct{}{}
		for range cap(lists) {
			assert.Equal(t, 1, <-lists)
		}
		assert.Equal(t, 1, a.called(t, "zrevrange"), "lists that asked Redis")
	})
}

// A store that loses its data while outcomes are on their way gets the whole rule, with its history.
func TestAnAdaptivePoolSurvivesAFlush(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, limittrial.Recorded(), 40, "a", "b")
		f.load("a", 60, time.Minute)
		f.load("b", 60, time.Minute)
		for range 5 {
			time.Sleep(10 * time.Second)
			before := f.replicas["a"].pool(t)
			require.NotEmpty(t, before.History)
			require.NoError(t, f.replicas["a"].client.FlushAll(t.Context()).Err())
			time.Sleep(time.Second)
			for name, r := range f.replicas {
				away, fault := r.outage("k")
				assert.False(t, away, name)
				require.NoError(t, fault, name)
				assert.Equal(t, before.History, r.pool(t).History[:len(before.History)], name)
			}
		}
		f.calls.Wait()
	})
}

// Replicas that are configured for different rules, as in the middle of a rollout, follow the one that the pool was
// made with.
func TestAPoolHasOneRule(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, limittrial.Recorded(), 40, "a", "b")
		f.load("a", 60, time.Minute)
		time.Sleep(time.Second)
		newLoad(f, limittrial.Probing(), "k")("b", 60, time.Minute)
		time.Sleep(30 * time.Second)
		a, b := f.replicas["a"], f.replicas["b"]
		assert.Equal(t, a.pool(t).History, b.pool(t).History)
		assert.Equal(t, a.pool(t).Limit, b.pool(t).Limit)
		rule, err := b.client.HGet(t.Context(), b.client.Prefix+"limit:k", "rule").Result()
		require.NoError(t, err)
		assert.Contains(t, rule, `{"recorded":`)
		f.calls.Wait()
	})
}
