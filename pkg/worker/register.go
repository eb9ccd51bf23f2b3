package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/effect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/jsonschema"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// onUnknown are the words of offers.
var onUnknown = map[string]toolv1.OnUnknown{
	"": toolv1.OnUnknown_ON_UNKNOWN_FAIL, "fail": toolv1.OnUnknown_ON_UNKNOWN_FAIL, "retry": toolv1.OnUnknown_ON_UNKNOWN_RETRY,
}

// OnUnknown reads an offer's rule for calls whose worker was lost.
func OnUnknown(offer *workerv1.Offer) toolv1.OnUnknown { return onUnknown[offer.GetOnUnknown()] }

// namePattern is the pattern of offers' names. Tools have a stricter rule of their own.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}$`)

// DefaultProject is whose runs reach a worker that names no project.
const DefaultProject = "projects/default"

// Project returns the id of the project that a registration is for.
func Project(r *workerv1.Register) (string, error) {
	if r.GetProject() == "" {
		return resource.ParseProject("register.project", DefaultProject)
	}
	return resource.ParseProject("register.project", r.GetProject())
}

// enrol validates a registration and makes its session, which does not accept calls yet.
func (h *Host) enrol(r *workerv1.Register) (*session, error) {
	if r == nil {
		return nil, rpcerr.InvalidField("register", "the first frame of a worker must be its registration")
	}
	project, err := Project(r)
	if err != nil {
		return nil, err
	}
	s := newSession(h, project, r.GetWorker())
	switch n := r.GetMaxInFlight(); {
	case n < 0 || n > maxInFlight:
		return nil, rpcerr.InvalidField("register.max_in_flight", "is %d; want 1 to %d, or nothing for 1", n, maxInFlight)
	case n > 0:
		s.max = int(n)
	}
	switch {
	case len(s.name) > 128:
		return nil, rpcerr.InvalidField("register.worker", "is longer than 128 bytes")
	case len(r.GetOffers()) == 0:
		return nil, rpcerr.InvalidField("register.offers", "a worker has to offer something, such as a tool")
	case len(r.GetOffers()) > maxOffers:
		return nil, rpcerr.InvalidField("register.offers", "there are %d, more than %d", len(r.GetOffers()), maxOffers)
	case len(r.GetUnfinished()) > maxUnfinished:
		return nil, rpcerr.InvalidField("register.unfinished", "there are %d, more than %d", len(r.GetUnfinished()), maxUnfinished)
	}
	for i, offer := range r.GetOffers() {
		of := Offered{project, offer.GetKind(), offer.GetName()}
		if err := h.checkOffer(offer); err != nil {
			if _, ok := rpcerr.As(err); !ok {
				err = rpcerr.InvalidRequest("%v", err)
			}
			return nil, rpcerr.In(fmt.Sprintf("register.offers[%d]", i), err)
		}
		if s.offers[of] != nil {
			return nil, rpcerr.InvalidField(fmt.Sprintf("register.offers[%d]", i), "%s is offered twice", of)
		}
		s.offers[of] = pinned(offer)
	}
	return s, nil
}

// pinned is the form in which an offer is compared, pinned and shown: without the insignificant blanks of its schema,
// which differ between languages.
func pinned(offer *workerv1.Offer) *workerv1.Offer {
	offer = proto.CloneOf(offer)
	var schema bytes.Buffer
	if json.Compact(&schema, []byte(offer.GetParametersJson())) == nil {
		offer.ParametersJson = schema.String()
	}
	return offer
}

// checkOffer checks one offer.
func (h *Host) checkOffer(offer *workerv1.Offer) error {
	kind, ok := h.kinds[offer.GetKind()]
	switch {
	case !ok:
		return rpcerr.InvalidField("kind", "the kind %q is not served here; served are: %s", offer.GetKind(), strings.Join(slices.Sorted(maps.Keys(h.kinds)), ", "))
	case !namePattern.MatchString(offer.GetName()):
		return rpcerr.InvalidField("name", "the name %q is not 1 to 128 letters, digits and ._/-", offer.GetName())
	case offer.GetTimeout() != nil && (offer.GetTimeout().CheckValid() != nil || offer.GetTimeout().AsDuration() <= 0):
		return rpcerr.InvalidField("timeout", "the timeout of %s is not a time above 0", offer.GetName())
	case len(offer.GetStoreKeys()) > 100:
		return rpcerr.InvalidField("store_keys", "%s names %d store keys, more than 100", offer.GetName(), len(offer.GetStoreKeys()))
	}
	switch _, known := onUnknown[offer.GetOnUnknown()]; {
	case offer.GetOnUnknown() == "ask":
		return rpcerr.InvalidField("on_unknown", "on_unknown of %s is ask, which is not built yet; give fail, and resume what failed once you have decided, or retry", offer.GetName())
	case !known:
		return rpcerr.InvalidField("on_unknown", "on_unknown of %s is %q; want fail or retry", offer.GetName(), offer.GetOnUnknown())
	}
	if text := offer.GetParametersJson(); text != "" {
		if _, err := jsonschema.Compile(json.RawMessage(text)); err != nil {
			return rpcerr.InvalidField("parameters_json", "parameters_json of %s: %v", offer.GetName(), err)
		}
	}
	if kind.Check == nil {
		return nil
	}
	return kind.Check(offer)
}

// admitSession adds a session, and returns which of its calls are no longer wanted. Calls that may still be requested
// are held.
func (h *Host) admitSession(ctx context.Context, s *session, unfinished []string) error {
	h.mu.Lock()
	switch {
	case h.closed:
		h.mu.Unlock()
		return stopping()
	case len(h.sessions) >= maxSessions:
		h.mu.Unlock()
		return rpcerr.WorkerRefused(s.name, time.Minute, "there are %d workers already", maxSessions)
	}
	if err := h.conflicts(s); err != nil {
		h.mu.Unlock()
		return err
	}
	h.sessions[s] = struct{}{}
	for _, id := range unfinished {
		if c := h.calls[effect.Key{Project: s.project, ID: id}]; c == nil {
			s.held[id] = nil
		}
	}
	ask := slices.Collect(maps.Keys(s.held))
	h.mu.Unlock()

	var forget []string
	for _, id := range ask { // held first: one of the two notices a result that becomes durable in between
		if !h.wanted(ctx, effect.Key{Project: s.project, ID: id}) {
			forget = append(forget, id)
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.conflicts(s); err != nil { // Other sessions may have been added in the meantime.
		delete(h.sessions, s)
		return err
	}
	for _, id := range forget {
		delete(s.held, id)
	}
	s.welcome(append(forget, s.forget...))
	for _, id := range unfinished {
		c := h.calls[effect.Key{Project: s.project, ID: id}]
		if c != nil && !c.over && s.offers[c.pool.of] != nil && s.calls[id] == nil {
			delete(s.held, id)
			h.give(c, s, false)
		}
	}
	h.sweep()
	for of, offer := range s.offers {
		h.join(h.pool(of), s, offer)
	}
	return nil
}

// conflicts refuses a session that promises something else under the name of others.
func (h *Host) conflicts(s *session) error {
	for of, offer := range s.offers {
		if p := h.pools[of]; p != nil && len(p.sessions) > 0 && !same(p.offer, offer) {
			return p.conflict()
		}
	}
	return nil
}

// newName makes a name for a worker that has none.
func newName() string { return "worker-" + resource.NewID() }
