package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/lru"
)

// ring is the instances of a model for all credentials of an account. It is constant.
//
// Conversations are distributed by weighted rendezvous hashing of their beginning: each credential has a score for a
// conversation, and the highest one counts. The turns of a conversation, whose beginning is the same, so have the same
// credential in every replica, with the vendor's prompt cache of it; and when a credential rests or is removed, only
// its conversations move.
type ring struct {
	models  []*Model
	weights []int
	owner   string
	resting *resting
}

// openAll opens a model for each credential of the account, and returns the first.
func (r *Registry) openAll(k Kind, spec Spec) (*Model, error) {
	ring, account := &ring{resting: &r.resting}, spec.Account
	if k.AccountInModel {
		account, _, _ = strings.Cut(spec.Model, "/")
	}
	for at := 0; at == 0 || at < len(ring.weights); at++ {
		selected := &selection{at: at}
		spec.credentials = selected
		p, err := k.Open(spec)
		if err != nil {
			ring.close()
			return nil, err
		}
		model := &Model{Kind: k, Name: spec.Model, Account: account, Provider: p}
		if len(selected.all) > 1 {
			model.ring, model.Key = ring, selected.all[at].number
		}
		ring.models = append(ring.models, model)
		if at == 0 {
			// A call in flight at a reload may find out that a replaced credential fails: this says nothing about the
			// new one of its number.
			ring.owner = selected.owner + "@" + strconv.Itoa(r.replacedAt[k.Name])
			for _, c := range selected.all {
				ring.weights = append(ring.weights, c.weight)
			}
		}
	}
	return ring.models[0], nil
}

func (r *ring) close() {
	for _, model := range r.models {
		_ = model.Close()
	}
}

// closeAll closes the instances for all credentials.
func (m *Model) closeAll() {
	if m.ring != nil {
		m.ring.close()
		return
	}
	_ = m.Close()
}

// HasKeys reports whether the account has several credentials.
func (m *Model) HasKeys() bool { return m.ring != nil }

// Pick returns the instance for a conversation, by its beginning: that of its credential, unless it rests, was tried
// before, or does not serve the call (nil: all do). The others follow by their order for the conversation. Where all
// rest, it is the one that rests the shortest. It returns m if the account has one credential.
func (m *Model) Pick(beginning []byte, tried []int, serves func(*Model) bool) *Model {
	if m.ring == nil {
		return m
	}
	order := m.ring.order(beginning)
	if serves != nil {
		order = slices.DeleteFunc(order, func(m *Model) bool { return !serves(m) })
	}
	if len(order) == 0 {
		return m
	}
	now := time.Now()
	rest := func(m *Model) time.Duration { return m.ring.resting.left(m.restKeys(), now) }
	best := slices.MinFunc(order, func(a, b *Model) int { // The first of equal ones.
		if d := rest(a) - rest(b); d != 0 {
			return int(max(-1, min(1, d)))
		}
		return count(slices.Contains(tried, a.Key)) - count(slices.Contains(tried, b.Key))
	})
	return best
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Ready reports whether the account has a credential that does not rest, was not tried, and serves the call.
func (m *Model) Ready(tried []int, serves func(*Model) bool) bool {
	if m.ring == nil {
		return false
	}
	now := time.Now()
	return slices.ContainsFunc(m.ring.models, func(m *Model) bool {
		return !slices.Contains(tried, m.Key) && (serves == nil || serves(m)) && m.ring.resting.left(m.restKeys(), now) == 0
	})
}

// order returns the instances, the one with the highest score for a conversation first.
func (r *ring) order(beginning []byte) []*Model {
	seed := sha256.Sum256(beginning)
	scores := make(map[*Model]float64, len(r.models))
	for i, m := range r.models {
		hash := sha256.Sum256(append(seed[:], strconv.Itoa(m.Key)...))
		part := (float64(binary.BigEndian.Uint64(hash[:])>>11) + 0.5) / (1 << 53) // within 0 and 1, neither of them
		scores[m] = -float64(r.weights[i]) / math.Log(part)
	}
	order := slices.Clone(r.models)
	slices.SortStableFunc(order, func(a, b *Model) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return order
}

// How long a credential rests after a failure that another one might not have.
const (
	// limitedRest is after a rate limit without a Retry-After; maxLimitedRest bounds one.
	limitedRest, maxLimitedRest = 10 * time.Second, 5 * time.Minute
	// refusedRest is after the API refused the credential, or what it may spend is spent.
	refusedRest = time.Minute
	// unreachableRest is after the address could not be reached.
	unreachableRest = 10 * time.Second
)

// Rest makes the model's credential rest if a failure of an attempt is the credential's or its address's own: a rate
// limit, which concerns the pool of the model alone, a refused or a spent key, or a connection that failed. It returns
// for how long, why in a word, and what ends the rest early; zero and nil if it does not rest. Accounts with one
// credential have no rest.
func (m *Model) Rest(err error) (rest time.Duration, why string, end func()) {
	failure, ok := As(err)
	if m.ring == nil || !ok {
		return 0, "", nil
	}
	all, pool := m.restKeys()[0], m.restKeys()[1]
	key := all
	switch {
	case failure.Auth:
		rest, why = refusedRest, "refused"
	case failure.Status == http.StatusForbidden: // It may concern this model alone.
		rest, why, key = refusedRest, "refused", pool
	case failure.Status == http.StatusPaymentRequired, failure.Status == http.StatusTooManyRequests && failure.Class == Final:
		rest, why = refusedRest, "spent" // A limit that no retry outlasts is one of money.
	case failure.Class == RateLimit:
		rest, why, key = limitedRest, "rate_limited", pool
		if failure.RetryAfter > 0 {
			rest = min(failure.RetryAfter, maxLimitedRest)
		}
	case failure.Class == Transient && failure.Status == 0 && !errors.Is(err, ErrCut):
		rest, why = unreachableRest, "unreachable"
	default:
		return 0, "", nil
	}
	until := time.Now().Add(rest)
	m.ring.resting.rest(key, until)
	return rest, why, func() { m.ring.resting.end(key, until) }
}

// ErrCut marks the failure of an attempt that the gateway ended because it took too long.
var ErrCut = errors.New("cut short")

// restKeys are what may rest: the credential, and its pool.
func (m *Model) restKeys() [2]string {
	of := m.ring.owner + "#" + strconv.Itoa(m.Key)
	return [2]string{of, of + "/" + m.Constant().ConnectionKey}
}

// maxResting bounds what is known to rest.
const maxResting = 4096

// resting is which credentials rest, and until when. It is safe for concurrent use.
type resting struct {
	mu    sync.Mutex
	until *lru.Cache[string, time.Time]
}

func (r *resting) rest(key string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = lru.New[string, time.Time](maxResting)
	}
	r.until.Put(key, until, 1)
}

// end ends the rest of a key, unless it rests for something else meanwhile.
func (r *resting) end(key string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		return
	}
	if now, ok := r.until.Get(key); ok && now.Equal(until) {
		r.until.Remove(key)
	}
}

// clear ends every rest.
func (r *resting) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = nil
}

// left is how long the longest rest of some keys lasts yet.
func (r *resting) left(keys [2]string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		return 0
	}
	var longest time.Duration
	for _, key := range keys {
		if until, ok := r.until.Get(key); ok {
			longest = max(longest, until.Sub(now))
		}
	}
	return longest
}
