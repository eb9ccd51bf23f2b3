package workerproxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	workers "github.com/evalfleet/evalfleet/pkg/worker"
)

// stall is how long a worker may leave a frame unread.
const stall = 30 * time.Second

// worker is one worker's connection, and the connections to the hosts behind it.
type worker struct {
	register *workerv1.Register
	up       workerv1.WorkerService_ConnectServer // to the worker
	cancel   context.CancelCauseFunc
	max      int
	hosts    []*host

	sending sync.Mutex // of up

	mu     sync.Mutex
	calls  map[string]*host // being processed by the worker, or with a result that is not accepted yet
	busy   map[string]bool  // the subset of calls that the worker is working on
	queue  []held           // calls beyond the worker's bound
	strays workers.Strays   // of frames from the worker
}

// host is a service that is assigned a share of the worker's offers.
type host struct {
	stream  workerv1.WorkerService_ConnectClient
	sending sync.Mutex
}

// held is a call that waits until the worker has a free slot.
type held struct {
	from *host
	call *workerv1.Call
}

func newWorker(stream workerv1.WorkerService_ConnectServer, r *workerv1.Register, cancel context.CancelCauseFunc) *worker {
	return &worker{register: r, up: stream, cancel: cancel, max: max(1, int(r.GetMaxInFlight())), calls: map[string]*host{}, busy: map[string]bool{}}
}

// connect registers at each host. A call that only some hosts list as forgotten is still wanted by another one.
func (w *worker) connect(ctx context.Context, all Hosts) error {
	parts, err := shares(w.register, all)
	if err != nil {
		return err
	}
	slices.Sort(w.register.Unfinished)
	w.register.Unfinished = slices.Compact(w.register.Unfinished) // Hosts are counted below, once for each key.
	unwanted, name := map[string]int{}, w.register.GetWorker()
	for _, part := range parts {
		register := proto.CloneOf(w.register)
		register.Offers, register.Worker = part.offers, name
		stream, err := part.host.Connect(ctx)
		if err != nil {
			return err
		}
		h := &host{stream: stream}
		w.hosts = append(w.hosts, h)
		if err := stream.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: register}}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		answer, err := stream.Recv()
		if err != nil {
			return part.whole(err)
		}
		registered := answer.GetRegistered()
		name = cmp.Or(name, registered.GetWorker()) // one name at all of them
		for _, key := range w.register.GetUnfinished() {
			if slices.Contains(registered.GetForget(), key) {
				unwanted[key]++
			} else {
				w.calls[key], w.busy[key] = h, true
			}
		}
	}
	answer := &workerv1.Registered{Worker: name}
	for _, key := range w.register.GetUnfinished() {
		if unwanted[key] == len(parts) {
			answer.Forget = append(answer.Forget, key)
		}
	}
	w.strays.Expect(len(answer.Forget))
	return w.up.Send(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Registered{Registered: answer}})
}

// run forwards frames in both directions until the worker disconnects, a host is lost, or all hosts have ended with OK,
// as they do once a draining worker has nothing left.
func (w *worker) run(ctx context.Context) error {
	hosts, left := make(chan error, len(w.hosts)), make(chan error, 1)
	for _, h := range w.hosts {
		go func() { hosts <- w.down(h) }()
	}
	go func() { left <- w.upward() }()
	for range w.hosts {
		select {
		case err := <-hosts:
			if err != nil {
				return err
			}
		case err := <-left:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// down forwards a host's frames to the worker.
func (w *worker) down(h *host) error {
	for {
		frame, err := h.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if frame = w.admit(h, frame); frame == nil {
			continue
		}
		if err := w.tell(frame); err != nil {
			return err
		}
		if frame.GetCancel() != nil {
			if err := w.next(); err != nil {
				return err
			}
		}
	}
}

// admit records a host's frame; it returns nil if the worker must not receive the frame.
func (w *worker) admit(h *host, frame *workerv1.ConnectResponse) *workerv1.ConnectResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch f := frame.GetFrame().(type) {
	case *workerv1.ConnectResponse_Call:
		if len(w.busy) >= w.max {
			w.queue = append(w.queue, held{h, f.Call})
			return nil
		}
		w.begin(h, f.Call)
	case *workerv1.ConnectResponse_Cancel:
		key := f.Cancel.GetKey()
		if at := slices.IndexFunc(w.queue, func(q held) bool { return q.call.GetKey() == key }); at >= 0 {
			w.queue = slices.Delete(w.queue, at, at+1)
			return nil // the worker has not received the call
		}
		delete(w.busy, key)
	case *workerv1.ConnectResponse_Accepted:
		delete(w.calls, f.Accepted.GetKey())
		delete(w.busy, f.Accepted.GetKey())
	}
	return frame
}

func (w *worker) begin(h *host, call *workerv1.Call) {
	w.calls[call.GetKey()], w.busy[call.GetKey()] = h, true
}

// tell sends a frame to the worker. A worker that reads nothing for the duration of stall is disconnected.
func (w *worker) tell(frame *workerv1.ConnectResponse) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	stalled := time.AfterFunc(stall, func() {
		w.cancel(rpcerr.WorkerRefused(w.register.GetWorker(), time.Minute, "the worker has read nothing for %s", stall))
	})
	defer stalled.Stop()
	return w.up.Send(frame)
}

// upward forwards the worker's frames to the hosts.
func (w *worker) upward() error {
	for {
		frame, err := w.up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch f := frame.GetFrame().(type) {
		case *workerv1.ConnectRequest_Result:
			err = w.result(f.Result.GetKey(), frame)
		case *workerv1.ConnectRequest_Progress:
			err = w.progress(f.Progress.GetKey(), frame)
		case *workerv1.ConnectRequest_Register, nil:
			return rpcerr.InvalidRequest("a worker registers once, and a frame says something")
		default: // for all
			for _, h := range w.hosts {
				if err = h.tell(frame); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
}

// result forwards a result to the host that asked for it, and sends the worker a queued call.
func (w *worker) result(key string, frame *workerv1.ConnectRequest) error {
	w.mu.Lock()
	h := w.calls[key]
	delete(w.busy, key)
	w.mu.Unlock()
	if err := w.next(); err != nil {
		return err
	}
	if h == nil {
		if err := w.tell(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Accepted{Accepted: &workerv1.ResultAccepted{Key: key}}}); err != nil {
			return err
		}
		return w.strays.Stray(w.register.GetWorker())
	}
	w.strays.Known()
	return h.tell(frame)
}

// next sends the worker queued calls, as many as it has free slots.
func (w *worker) next() error {
	w.mu.Lock()
	var calls []*workerv1.Call
	for len(w.queue) > 0 && len(w.busy) < w.max {
		q := w.queue[0]
		w.queue = w.queue[1:]
		w.begin(q.from, q.call)
		calls = append(calls, q.call)
	}
	w.mu.Unlock()
	for _, call := range calls {
		if err := w.tell(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Call{Call: call}}); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) progress(key string, frame *workerv1.ConnectRequest) error {
	w.mu.Lock()
	h := w.calls[key]
	w.mu.Unlock()
	if h == nil {
		return w.strays.Stray(w.register.GetWorker())
	}
	return h.tell(frame)
}

// tell sends a frame to a host. The goroutine that reads from the host notices the host's end.
func (h *host) tell(frame *workerv1.ConnectRequest) error {
	h.sending.Lock()
	defer h.sending.Unlock()
	if err := h.stream.Send(frame); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
