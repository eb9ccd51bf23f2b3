package worker

import (
	"cmp"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// session is one worker's connection. The host's lock guards it, except out and heard.
type session struct {
	host    *Host
	name    string
	project string
	offers  map[Offered]*workerv1.Offer
	max     int
	// calls are the worker's calls, by key. held are calls of an earlier connection that no caller has requested yet,
	// with the result if the worker has sent it.
	calls map[string]*call
	held  map[string]*result
	// delivered are calls whose result is not durable yet, with the reason why it is unusable, if it is.
	delivered map[string]string
	welcomed  bool
	forget    []string // accepted before the worker was welcomed
	draining  bool
	strays    Strays

	out outbox

	life  sync.Mutex
	heard time.Time
	over  chan struct{}
	cause error // once over
}

// result is what a worker sent for a call.
type result struct {
	payload string
	err     *workerv1.CallError
}

func (r *result) size() int { return len(r.payload) + len(r.err.GetMessage()) }

func newSession(h *Host, project, name string) *session {
	return &session{
		host: h, project: project, name: cmp.Or(name, newName()), max: 1, offers: map[Offered]*workerv1.Offer{}, calls: map[string]*call{}, held: map[string]*result{},
		delivered: map[string]string{}, out: newOutbox(), heard: time.Now(), over: make(chan struct{}),
	}
}

// free is the number of calls that the worker would take.
func (s *session) free() int {
	busy := len(s.calls)
	for _, parked := range s.held {
		if parked == nil {
			busy++
		}
	}
	return s.max - busy
}

// end ends the connection, once.
func (s *session) end(cause error) {
	s.life.Lock()
	defer s.life.Unlock()
	select {
	case <-s.over:
	default:
		s.cause = cause
		close(s.over)
	}
}

func (s *session) hear() {
	s.life.Lock()
	defer s.life.Unlock()
	s.heard = time.Now()
}

func (s *session) silence() time.Duration {
	s.life.Lock()
	defer s.life.Unlock()
	return time.Since(s.heard)
}

// welcome answers the registration.
func (s *session) welcome(forget []string) {
	s.welcomed = true
	s.strays.Expect(len(forget))
	s.out.push(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Registered{Registered: &workerv1.Registered{Worker: s.name, Forget: forget}}})
}

// accept acknowledges a durable result to the worker, if the worker sent it or still has the call.
func (s *session) accept(id string) {
	problem, delivered := s.delivered[id]
	parked, held := s.held[id]
	if !delivered && !held {
		return
	}
	delete(s.delivered, id)
	delete(s.held, id)
	if parked != nil {
		s.host.parked -= parked.size()
	}
	if !s.welcomed {
		s.forget = append(s.forget, id)
		return
	}
	s.out.push(accepted(id, problem))
}

func accepted(id, problem string) *workerv1.ConnectResponse {
	return &workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Accepted{Accepted: &workerv1.ResultAccepted{Key: id, Problem: problem}}}
}

// Connect implements WorkerService: it has one worker until its connection ends.
func (h *Host) Connect(stream workerv1.WorkerService_ConnectServer) error {
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	s, err := h.enrol(first.GetRegister())
	if err != nil {
		return err
	}
	if err := h.admitSession(stream.Context(), s, first.GetRegister().GetUnfinished()); err != nil {
		return err
	}
	log := h.deps.Logger.With("worker", s.name, "project", s.project)
	log.InfoContext(stream.Context(), "a worker is connected", "offers", len(s.offers))
	defer func() {
		left := h.removeSession(s)
		log.InfoContext(stream.Context(), "a worker has left", "calls", left, "cause", s.cause)
	}()
	// Both end with the stream, which ends when this returns.
	h.work.Go(func() { s.end(s.read(stream)) })
	h.work.Go(func() { s.end(s.write(stream)) })
	return s.watch(stream)
}

// watch pings the worker until its connection is over.
func (s *session) watch(stream workerv1.WorkerService_ConnectServer) error {
	pings := time.NewTicker(s.host.cfg.Silence / 3)
	defer pings.Stop()
	for {
		select {
		case <-s.over:
			return s.cause
		case <-stream.Context().Done():
			s.end(stream.Context().Err())
		case <-pings.C:
			if s.silence() >= s.host.cfg.Silence {
				s.end(rpcerr.ServiceUnavailable("WorkerService", time.Second, "no sign of life for %s; answer pings and connect again", s.host.cfg.Silence))
				continue
			}
			s.out.push(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Ping{Ping: &workerv1.Ping{}}})
		}
	}
}

// read handles frames until the stream ends or breaks the protocol. It stops reading while a worker does not receive
// its replies.
func (s *session) read(stream workerv1.WorkerService_ConnectServer) error {
	for {
		if !s.out.room(s.over) {
			return s.cause
		}
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.hear()
		if err := s.handle(frame); err != nil {
			return err
		}
	}
}

func (s *session) write(stream workerv1.WorkerService_ConnectServer) error {
	for {
		frame := s.out.next(s.over)
		if frame == nil {
			return s.cause
		}
		if err := stream.Send(frame); err != nil {
			return err
		}
		if s.out.empty() && s.done() {
			return nil
		}
	}
}

// done reports whether a draining worker has nothing left.
func (s *session) done() bool {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	return s.draining && len(s.calls) == 0 && len(s.delivered) == 0
}

func (s *session) handle(frame *workerv1.ConnectRequest) error {
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, here := h.sessions[s]; !here {
		return s.cause
	}
	switch f := frame.GetFrame().(type) {
	case *workerv1.ConnectRequest_Result:
		return h.result(s, f.Result)
	case *workerv1.ConnectRequest_Progress:
		c := s.calls[f.Progress.GetKey()]
		if c == nil {
			return s.strays.Stray(s.name)
		}
		c.progress(f.Progress.GetMessage())
	case *workerv1.ConnectRequest_Pong:
	case *workerv1.ConnectRequest_Draining:
		s.draining = true
		for of := range s.offers {
			h.leave(h.pools[of], s)
		}
		if len(s.calls) == 0 && len(s.delivered) == 0 && s.out.empty() {
			s.end(nil)
		}
	case *workerv1.ConnectRequest_Register:
		return rpcerr.InvalidField("register", "a worker registers once; to offer something else, connect again")
	default:
		return rpcerr.InvalidRequest("a frame says nothing that is known here")
	}
	return nil
}

// result takes a worker's result.
func (h *Host) result(s *session, r *workerv1.CallResult) error {
	sent := &result{payload: r.GetPayloadJson(), err: r.GetError()}
	if r.GetOutcome() == nil {
		sent.err = &workerv1.CallError{Type: "unknown", Message: "the worker sent a result without an outcome"}
	}
	id := r.GetKey()
	if c := s.calls[id]; c != nil {
		s.strays.Known()
		delete(s.calls, id)
		h.answered(c, s, sent)
		h.fillSlots(s)
		return nil
	}
	if parked, held := s.held[id]; held {
		if parked != nil {
			return s.strays.Stray(s.name) // it answers twice
		}
		if h.parked+sent.size() > maxParked {
			return rpcerr.WorkerRefused(s.name, time.Minute, "too many results wait for those who asked; connect again later")
		}
		h.parked += sent.size()
		s.held[id] = sent
		h.fillSlots(s)
		return nil
	}
	if _, twice := s.delivered[id]; !twice {
		s.out.push(accepted(id, "")) // The call is not wanted: the worker may forget it.
	}
	return s.strays.Stray(s.name)
}

// fillSlots gives a session's free slots to calls that wait.
func (h *Host) fillSlots(s *session) {
	if s.draining {
		return
	}
	for of := range s.offers {
		if p := h.pools[of]; p != nil && p.waiting.Len() > 0 {
			h.dispatch(p)
		}
	}
}

// removeSession removes a session whose connection has ended, and reassigns or ends its calls. It returns their number.
func (h *Host) removeSession(s *session) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	for of := range s.offers {
		if p := h.pools[of]; p != nil {
			h.leave(p, s)
		}
	}
	for _, parked := range s.held {
		if parked != nil {
			h.parked -= parked.size()
		}
	}
	n := len(s.calls)
	for id, c := range s.calls {
		delete(s.calls, id)
		if h.calls[effect.Key{Project: s.project, ID: id}] == c {
			h.lost(c, s)
		}
	}
	return n
}
