package peers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
)

// The services that runs call.
const (
	Modelgw  = "modelgw"
	Toolexec = "toolexec"
	Sandboxd = "sandboxd"
)

// Call is a request that is open.
type Call struct {
	// Run is the name of the run. Eval is the name of its evaluation; empty if it has none.
	Run, Eval string
	// Services are the services that must be reachable for an answer.
	Services []string
	// Since is when it was wanted.
	Since time.Time
}

// Outages are the unreachable services, and the calls that need them. The zero value has none. It is safe for
// concurrent use.
type Outages struct {
	mu    sync.Mutex
	since map[string]time.Time // by service
	calls map[*Call]struct{}
}

// Begin adds an open call, until end is called.
func (o *Outages) Begin(c Call) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls == nil {
		o.calls = map[*Call]struct{}{}
	}
	o.calls[&c] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.calls, &c)
	}
}

// Probe checks each service. Away reports whether a service is unreachable; if nil, all count as reachable.
func (o *Outages) Probe(away func(service string) bool, now time.Time) {
	if away == nil {
		return
	}
	for _, service := range []string{Modelgw, Toolexec, Sandboxd} {
		gone := away(service)
		o.mu.Lock()
		if _, known := o.since[service]; gone && !known {
			if o.since == nil {
				o.since = map[string]time.Time{}
			}
			o.since[service] = now
		} else if !gone {
			delete(o.since, service)
		}
		o.mu.Unlock()
	}
}

// Waits returns the waits of an evaluation's runs whose calls need an unreachable service.
func (o *Outages) Waits(eval string) []*agentv1.EvalWait {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*agentv1.EvalWait
	for _, service := range slices.Sorted(maps.Keys(o.since)) {
		runs, since := map[string]bool{}, time.Time{}
		for c := range o.calls {
			if c.Eval == eval && slices.Contains(c.Services, service) {
				runs[c.Run] = true
				if since.IsZero() || c.Since.Before(since) {
					since = c.Since
				}
			}
		}
		if len(runs) == 0 {
			continue
		}
		if gone := o.since[service]; gone.After(since) {
			since = gone
		}
		all = append(all, &agentv1.EvalWait{
			Reason: waits.Service, Message: service + " does not answer", Since: timestamppb.New(since), Samples: int32(len(runs)),
		})
	}
	return all
}
