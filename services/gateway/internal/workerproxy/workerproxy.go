// Package workerproxy gives a worker one connection to all services: it parts a registration by kind among the services
// that call those kinds, and joins what they say.
//
//	                       ┌─ tools ──────────────▶ toolexec
//	worker ◀──▶ front ─────┤
//	                       └─ scorers, continue ──▶ agentorch
//
// It keeps nothing beyond a connection. A host that goes away ends the worker's connection; the worker connects again
// and offers what it has in hand. The worker's bound of calls in flight holds for all hosts together.
package workerproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Hosts are the services that use workers.
type Hosts struct {
	// ByKind are the hosts by the kind of offer that they call.
	ByKind map[string]workerv1.WorkerServiceClient
}

// Proxy is WorkerService on the shared address. It is safe for concurrent use; Close ends it.
type Proxy struct {
	workerv1.UnimplementedWorkerServiceServer

	hosts Hosts

	mu     sync.Mutex
	open   map[*worker]context.CancelCauseFunc
	closed bool
}

// New returns a proxy in front of hosts.
func New(hosts Hosts) *Proxy {
	return &Proxy{hosts: hosts, open: map[*worker]context.CancelCauseFunc{}}
}

// Close closes all connections, which never end by themselves.
func (f *Proxy) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, cancel := range f.open {
		cancel(stopping())
	}
}

func stopping() error {
	return rpcerr.ServiceUnavailable("gateway", time.Second, "the gateway is stopping; connect again")
}

// enter registers a connection.
func (f *Proxy) enter(w *worker, cancel context.CancelCauseFunc) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return stopping()
	}
	f.open[w] = cancel
	return nil
}

func (f *Proxy) leave(w *worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, w)
}

// Connect implements WorkerService.
func (f *Proxy) Connect(stream workerv1.WorkerService_ConnectServer) error {
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if first.GetRegister() == nil {
		return rpcerr.InvalidField("register", "the first frame of a worker must be its registration")
	}
	ctx, cancel := context.WithCancelCause(passOn(stream.Context()))
	defer cancel(nil)
	w := newWorker(stream, first.GetRegister(), cancel)
	if err := f.enter(w, cancel); err != nil {
		return err
	}
	defer f.leave(w)
	if err := w.connect(ctx, f.hosts); err != nil {
		return err
	}
	return w.run(ctx)
}

// passOn forwards the worker's credential and request id to the hosts.
func passOn(ctx context.Context) context.Context {
	out := metadata.MD{}
	for _, key := range []string{"authorization", "x-request-id"} {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			out.Set(key, values...)
		}
	}
	return metadata.NewOutgoingContext(ctx, out)
}

// share is the part of a worker's offers that one host serves, in order.
type share struct {
	host   workerv1.WorkerServiceClient
	offers []*workerv1.Offer
	places []int // indexes in the whole registration
}

// shares divides a registration among the hosts.
func shares(r *workerv1.Register, hosts Hosts) ([]*share, error) {
	var parts []*share
	seen := map[string]bool{}
	for i, offer := range r.GetOffers() {
		host, ok := hosts.ByKind[offer.GetKind()]
		if !ok {
			return nil, rpcerr.InvalidField(offerAt(i)+".kind", "the kind %q is not served here; served are: %s", offer.GetKind(), strings.Join(slices.Sorted(maps.Keys(hosts.ByKind)), ", "))
		}
		name := offer.GetKind() + " " + offer.GetName()
		if seen[name] {
			return nil, rpcerr.InvalidField(offerAt(i), "%s is offered twice", name)
		}
		seen[name] = true
		at := slices.IndexFunc(parts, func(p *share) bool { return p.host == host })
		if at < 0 {
			at, parts = len(parts), append(parts, &share{host: host})
		}
		parts[at].offers, parts[at].places = append(parts[at].offers, offer), append(parts[at].places, i)
	}
	if len(parts) == 0 {
		return nil, rpcerr.InvalidField("register.offers", "a worker has to offer something, such as a tool")
	}
	return parts, nil
}

func offerAt(i int) string { return fmt.Sprintf("register.offers[%d]", i) }

// whole converts a host's refusal of its share into a refusal of the whole registration: it names an offer by the index
// that the worker gave it.
func (p *share) whole(err error) error {
	fault, ok := rpcerr.As(err)
	if !ok || len(fault.Fields) != 1 {
		return err
	}
	for i, place := range p.places {
		if rpcerr.Concerns(offerAt(i), err) {
			return rpcerr.Moved(offerAt(i), offerAt(place), err)
		}
	}
	return err
}
