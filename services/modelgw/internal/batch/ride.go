package batch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

const (
	// askShare is the part of its time so far after which a deferred call asks again, and mostAsk bounds it.
	askShare = 8
	mostAsk  = 15 * time.Minute
)

// Ride transports the requests of one call in batches. It is a [provider.Carrier], for one attempt at a time. It does
// not modify its call.
type Ride struct {
	batcher *Batcher
	model   *provider.Model
	group   Group // without its address
	key     effect.Key
	setting *modelv1.BatchSetting
	timeout time.Duration
	defers  bool

	// given is the rider whose failure the call was given last.
	given int64

	// Waited is how long the call waited here for batches.
	Waited time.Duration
}

// Call is a call for a [Ride].
type Call struct {
	// Ref is the reference by which Model was opened.
	Ref   provider.Ref
	Model *provider.Model
	// Key is that of the call; the zero key is a call without one, which ends with its caller.
	Key     effect.Key
	Setting *modelv1.BatchSetting
	// Timeout bounds the wait for each answer; zero is no bound.
	Timeout time.Duration
	// Defer makes a call that would wait fail with BATCH_PENDING.
	Defer bool
}

// Ride returns the transport of a call, whose model must have a batch API.
func (b *Batcher) Ride(c Call) *Ride {
	return &Ride{batcher: b, model: c.Model, group: Group{Ref: c.Ref}, key: c.Key, setting: c.Setting, timeout: c.Timeout, defers: c.Defer && c.Key.ID != ""}
}

// supportOf returns the batch API of a model; nil if there is none.
func supportOf(m *provider.Model) *provider.BatchSupport {
	return m.Capabilities().Batch
}

// Past is what is known of a call with a key from earlier.
type Past struct {
	// Since is when its first request joined; zero if none has.
	Since time.Time
	// Failed are the attempts that failed, which others have followed.
	Failed []*modelv1.FailedAttempt
	// Pending is BATCH_PENDING if an answer is missing, and the call is deferred.
	Pending error
}

// Past returns what is known of the call from earlier.
func (r *Ride) Past(ctx context.Context) (p Past, err error) {
	if r.key.ID == "" {
		return p, nil
	}
	riders, err := r.batcher.deps.Store.OfKey(ctx, r.key)
	for _, rider := range riders {
		if p.Since.IsZero() {
			p.Since = rider.Created
		}
		if rider.State == Told {
			p.Failed = append(p.Failed, r.failed(rider.Result))
		}
		if r.defers && (rider.State == Waiting || rider.State == Sent) && !r.late(rider) {
			p.Pending = r.pending(rider)
		}
	}
	return p, err
}

// failed is an attempt with such a result. What the vendor said of it is not kept for people.
func (r *Ride) failed(result provider.BatchResult) *modelv1.FailedAttempt {
	said := fmt.Sprintf("%s answered %d in a batch", r.model.Kind.Name, result.Status)
	if result.Status == 0 {
		said = r.model.Kind.Name + ": " + cmp.Or(string(reason(result.Body)), "the batch took longer than the call may wait")
	}
	return &modelv1.FailedAttempt{Error: said, Status: int32(result.Status)}
}

// late reports whether a rider has waited for as long as it may.
func (r *Ride) late(rider Rider) bool { return r.timeout > 0 && time.Since(rider.Created) >= r.timeout }

// pending is the error of a deferred call.
func (r *Ride) pending(rider Rider) error {
	after := min(max(planOf(r.setting).tick, time.Since(rider.Created)/askShare), mostAsk)
	return rpcerr.BatchPending(r.model.FullName(), r.key.ID, after, "the call waits for a batch of %s", r.model.FullName())
}

// Carry implements [provider.Carrier].
func (r *Ride) Carry(ctx context.Context, post provider.Post) (*http.Response, error) {
	b, support := r.batcher, supportOf(r.model)
	if room := roomOf(support); int64(len(post.Body)) > room {
		return nil, r.fault(provider.Final, "the request has %d bytes, and a batch at most %d", len(post.Body), room)
	}
	group := r.group
	group.URL, group.Header = post.URL, http.Header{}
	for name, values := range post.Header {
		if slices.Contains(support.Headers, http.CanonicalHeaderKey(name)) {
			group.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	owner := ""
	if r.key.ID == "" {
		owner = b.deps.Owner
	}
	key := effect.Key{Project: group.Ref.Project, ID: r.key.ID} // A call without a key has its project alone.
	join := func() (Rider, error) { return b.deps.Store.Join(ctx, group, r.setting, key, owner, post.Body) }
	rider, err := join()
	if err == nil && rider.ID == r.given { // The call makes another attempt with the same request.
		if err = b.deps.Store.Tell(ctx, rider.ID); err == nil {
			rider, err = join()
		}
	}
	if err != nil {
		return nil, err
	}
	if rider.State == Waiting {
		b.drive(rider.Group, true) //nolint:contextcheck // what drives a group lives as long as Run
	}
	return r.await(ctx, rider)
}

// await waits for the answer of a rider.
func (r *Ride) await(ctx context.Context, rider Rider) (*http.Response, error) {
	b, began := r.batcher, time.Now()
	defer func() { r.Waited += time.Since(began) }()
	for {
		changed, done := b.awaits(rider.ID)
		current, err := b.deps.Store.Rider(ctx, rider.ID)
		if err != nil {
			done()
			if errors.Is(err, ErrNotFound) {
				err = r.fault(provider.Final, "the request was dropped from its batch")
			}
			return nil, err
		}
		switch current.State {
		case Answered:
			done()
			return r.answer(ctx, current)
		case Told, Left:
			done()
			return nil, r.fault(provider.Final, "the request was dropped from its batch")
		case Waiting, Sent:
		}
		if r.late(current) {
			done()
			return nil, errors.Join(b.deps.Store.Tell(ctx, current.ID), r.fault(provider.Transient, "the batch took longer than %s", r.timeout))
		}
		b.note(current)
		if r.defers {
			done()
			return nil, r.pending(current)
		}
		err = r.wait(ctx, current, changed)
		done()
		if err != nil {
			return nil, err
		}
	}
}

// wait waits for a change of a rider, or for the end of its time.
func (r *Ride) wait(ctx context.Context, rider Rider, changed <-chan struct{}) error {
	var late <-chan time.Time
	if r.timeout > 0 {
		timer := time.NewTimer(time.Until(rider.Created.Add(r.timeout)))
		defer timer.Stop()
		late = timer.C
	}
	var ended error
	select {
	case <-changed:
		return nil
	case <-late:
		return nil
	case <-r.batcher.stopped:
		ended = fmt.Errorf("%w: %s is answered in a batch", effect.ErrDraining, r.model.FullName())
	case <-ctx.Done():
		ended = context.Cause(ctx)
	}
	if r.key.ID == "" { // No caller will ask for it.
		_ = r.batcher.deps.Store.Leave(context.WithoutCancel(ctx), rider.ID)
	}
	return ended
}

// answer is the answer of a rider. A failure that may pass is given once. One that ends the call is given again if the
// process dies before that is stored, unless another attempt has followed after all ([Ride.Carry]).
func (r *Ride) answer(ctx context.Context, rider Rider) (*http.Response, error) {
	status, body := rider.Result.Status, rider.Result.Body
	var err error
	switch store := r.batcher.deps.Store; {
	case r.key.ID == "": // No caller asks again.
		err = store.Leave(ctx, rider.ID)
	case status == http.StatusOK:
	case endsCall(status):
		r.given = rider.ID
	default:
		err = store.Tell(ctx, rider.ID)
	}
	if err != nil {
		return nil, err
	}
	if status == 0 {
		return nil, r.fault(provider.Final, "%s", body)
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

// endsCall reports whether a failure is an outcome of the call. After others the call may be made again under its key:
// they pass, or an operator mends the account.
func endsCall(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return false
	default:
		return provider.ClassOf(status) == provider.Final
	}
}

func (r *Ride) fault(class provider.Class, format string, args ...any) *provider.Error {
	return &provider.Error{Provider: r.model.Kind.Name, Class: class, Message: fmt.Sprintf(format, args...)}
}
