package worker

import (
	"container/list"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/effect"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Offered names offers of workers, within a project's id.
type Offered struct{ Project, Kind, Name string }

// String returns the kind and the name, as errors and waits have them.
func (o Offered) String() string { return o.Kind + " " + o.Name }

// pool is the workers that offer the same, and the calls that wait for them. The host's lock guards it.
type pool struct {
	of       Offered
	offer    *workerv1.Offer
	sessions []*session // that take calls
	waiting  list.List  // of *call, the next one first
	left     time.Time  // when the last session left, or the pool was made
}

// forgotten reports whether callers no longer wait for a worker.
func (p *pool) forgotten(absence time.Duration) bool {
	return p.offer == nil || len(p.sessions) == 0 && time.Since(p.left) >= absence
}

// pool returns the pool of an offer. It creates a pool if no worker has served the offer since the host started.
func (h *Host) pool(of Offered) *pool {
	p := h.pools[of]
	if p == nil {
		p = &pool{of: of, left: h.began}
		h.pools[of] = p
	}
	return p
}

// join adds a session to a pool.
func (h *Host) join(p *pool, s *session, offer *workerv1.Offer) {
	p.offer = offer
	p.sessions = append(p.sessions, s)
	h.served.Post(p.of, struct{}{})
	for e := p.waiting.Front(); e != nil; e = e.Next() {
		e.Value.(*call).bound(0, nil)
	}
	h.dispatch(p)
}

// leave removes a session from a pool. If it was the last session, waiting calls are notified.
func (h *Host) leave(p *pool, s *session) {
	at := slices.Index(p.sessions, s)
	if at < 0 {
		return
	}
	p.sessions = slices.Delete(p.sessions, at, at+1)
	if len(p.sessions) > 0 {
		return
	}
	p.left = time.Now()
	h.served.Clear(p.of)
	for e := p.waiting.Front(); e != nil; e = e.Next() {
		e.Value.(*call).bound(patience, h.away(p))
	}
}

// sweep deletes pools that have had neither workers nor waiting calls for longer than Absence.
func (h *Host) sweep() {
	for of, p := range h.pools {
		if p.forgotten(h.cfg.Absence) && p.waiting.Len() == 0 && time.Since(p.left) >= h.cfg.Absence {
			delete(h.pools, of)
		}
	}
}

// enqueue queues a call for a free slot. The call ends at once if no worker is expected.
func (h *Host) enqueue(c *call, first bool) {
	p := c.pool
	switch {
	case p.waiting.Len() >= maxWaiting:
		full := rpcerr.WorkerUnavailable(p.of.Kind, p.of.Name, time.Second, "%d calls wait for workers of %s", p.waiting.Len(), p.of)
		c.settle(Answer{}, effect.NotStarted(full))
		return
	case len(p.sessions) > 0:
		c.bound(0, nil)
	case time.Since(p.left) >= h.cfg.Absence:
		c.settle(Answer{}, h.away(p)())
		return
	default:
		c.bound(patience, h.away(p))
	}
	if first {
		c.waiting = p.waiting.PushFront(c)
	} else {
		c.waiting = p.waiting.PushBack(c)
	}
	h.dispatch(p)
}

// away is the error for a missing worker: temporary, or final once the time to wait for one is over.
func (h *Host) away(p *pool) func() error {
	return func() error {
		gone := time.Since(p.left)
		if gone < h.cfg.Absence {
			again := min(15*time.Second, max(time.Second, gone/4))
			return effect.NotStarted(rpcerr.WorkerUnavailable(p.of.Kind, p.of.Name, again, "waiting for a worker of %s", p.of))
		}
		return rpcerr.WorkerNotConnected(p.of.Kind, p.of.Name, "no worker of %s has been connected for %s; start one", p.of, h.cfg.Absence)
	}
}

// dispatch gives waiting calls to sessions with a free slot, the freest first.
func (h *Host) dispatch(p *pool) {
	for p.waiting.Len() > 0 {
		var freest *session
		for _, s := range p.sessions {
			if s.free() > 0 && (freest == nil || s.free() > freest.free()) {
				freest = s
			}
		}
		if freest == nil {
			return
		}
		c := p.waiting.Remove(p.waiting.Front()).(*call)
		c.waiting = nil
		h.give(c, freest, true)
	}
}

// same reports whether two offers promise callers the same.
func same(a, b *workerv1.Offer) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	a.Version, b.Version = "", ""
	return proto.Equal(a, b)
}

// conflict is the error for an offer whose name belongs to workers with a different offer.
func (p *pool) conflict() error {
	return rpcerr.ResourceExists(p.of.Kind+"s/"+p.of.Name,
		"%s is served by worker %s with another definition; workers of one name must offer the same, so give this one another name or stop the others first", p.of, strconv.Quote(p.sessions[0].name))
}
