package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/redistest"
)

// exchanged counts the exchanges of pools with Redis, by the calls of scripts.
func (r *replica) exchanged(t *testing.T) int { return r.called(t, "evalsha") }

// called counts the calls of a command.
func (r *replica) called(t *testing.T, command string) int {
	info, err := r.client.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, stat, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	require.True(t, found, info)
	calls, err := strconv.Atoi(stat[:strings.IndexByte(stat, ',')])
	require.NoError(t, err)
	return calls
}

// Callers name models freely, and a model may have a pool of its own: pools without calls cost little and are
// forgotten, and an operator's list of all pools does not grow with them.
func TestPoolsOfMadeUpNames(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(3), unlimited, "a", "b")
		a, b := f.replicas["a"], f.replicas["b"]
		f.load("a", 1, time.Second)
		f.calls.Wait()
		before := a.exchanged(t)
		time.Sleep(20 * time.Second)
		assert.LessOrEqual(t, a.exchanged(t)-before, 20*(1+4)+10, "an idle pool is exchanged once in a second, and each replica enters itself and its pools once in a second")

		const names = maxPools + 200
		for i := range names {
			slot, err := a.Acquire(t.Context(), limit.Request{Key: fmt.Sprint("made-up-", i), Fixed: 3})
			require.NoError(t, err)
			slot.Release()
		}
		time.Sleep(10 * time.Second)
		assert.Empty(t, a.limiter.chosen(func(p *pool) bool { return !p.quiet }), "with that many pools none keeps a lease that it does not use")
		assert.LessOrEqual(t, len(a.limiter.chosen(func(*pool) bool { return true })), maxPools)
		pools, err := b.limiter.Pools(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, len(pools), maxPools+1, "its own, and those that were used last")
		time.Sleep(2 * time.Second)
		assert.False(t, a.limiter.away || b.limiter.away, "an exchange of many pools is no outage")

		f.load("a", 3, 5*time.Second)
		time.Sleep(4 * time.Second)
		pools, err = a.Pools(t.Context())
		require.NoError(t, err)
		inUse := 0
		for _, p := range pools {
			inUse += p.Here.InUse
		}
		assert.Equal(t, 3, inUse, "a pool that was forgotten is known again")
		f.calls.Wait()
	})
}

// What no replica uses for a day is gone, though it was listed in between.
func TestAListKeepsNoPool(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(3), unlimited, "a")
		f.load("a", 1, time.Second)
		f.calls.Wait()
		time.Sleep(2 * quietAfter)
		a := f.replicas["a"]
		key := a.client.Prefix + "limit:k"
		require.NoError(t, a.client.PExpire(t.Context(), key, time.Hour).Err())
		a.pool(t)
		assert.LessOrEqual(t, a.client.PTTL(t.Context(), key).Val(), time.Hour)
		require.NoError(t, a.client.Del(t.Context(), key, a.client.Prefix+poolsKey).Err()) // As after a day.
		a.limiter.mu.Lock()
		a.limiter.pools["k"].seen = time.Now().Add(-keep)
		a.limiter.mu.Unlock()
		time.Sleep(2 * time.Second)
		pools, err := a.limiter.Pools(t.Context())
		require.NoError(t, err)
		assert.Empty(t, pools)
	})
}

// A process that was stopped for longer than its lease gives none of its slots to waiting callers: other replicas have
// them. It learns so when a caller frees its slot, though no exchange came first.
func TestAStoppedProcessSpendsNoSlots(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(2), unlimited, "a")
		a := f.replicas["a"]
		first, err := a.Acquire(t.Context(), f.request)
		require.NoError(t, err)
		second, err := a.Acquire(t.Context(), f.request)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if slot, err := a.Acquire(ctx, f.request); err == nil {
				slot.Release()
			}
		}()
		time.Sleep(time.Second)
		<-a.limiter.turn // As if it was stopped: no exchange.
		time.Sleep(10 * time.Second)
		first.Release()
		a.limiter.mu.Lock()
		p := a.limiter.pools["k"]
		assert.Equal(t, []int{0, 1, 1}, []int{p.gate.Slots(), p.gate.InUse(), p.gate.Waiting()})
		a.limiter.mu.Unlock()
		a.limiter.turn <- struct{}{}
		cancel()
		second.Release()
	})
}

// An answer that was read after the lease that it grants has expired gives no slots.
func TestAnAnswerThatIsReadTooLateGivesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(2), unlimited, "a")
		l := f.replicas["a"].limiter
		<-l.turn
		l.mu.Lock()
		l.pool("k").found(f.request)
		l.mu.Unlock()
		pools := l.chosen(func(*pool) bool { return true })
		for range 2 { // The first answer is that Redis does not have the pool, or has it.
			exchanges := l.prepare(pools)
			require.NoError(t, l.send(t.Context(), exchanges))
			time.Sleep(10 * time.Second)
			_, err := l.take(t.Context(), exchanges, nil)
			require.NoError(t, err)
		}
		l.mu.Lock()
		assert.Zero(t, pools[0].gate.Slots())
		l.mu.Unlock()
		l.turn <- struct{}{}
	})
}

// The clock of Redis is set back, as by a failover to a server whose clock is behind: leases of dead replicas end as
// soon as with any clock, and so does the care with which a new hash is divided.
func TestAClockThatIsSetBackHoldsNoSlots(t *testing.T) {
	simulate(t, func(t *testing.T, server *redistest.Server) {
		f := newFleet(t, server, fixedAt(10), unlimited, "a", "b")
		f.load("a", 20, time.Minute)
		time.Sleep(10 * time.Second)
		f.kill("a")
		b := f.replicas["b"].limiter
		f.setBack.Store(int64(time.Hour))
		f.load("b", 20, 20*time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, 10, f.replicas["b"].here(t).InUse)
		b.mu.Lock()
		assert.Equal(t, 1, b.replicas)
		b.mu.Unlock()
		f.calls.Wait()
	})
}
