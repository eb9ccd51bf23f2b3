package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// How long making a sandbox may take, without its set-up, and how often it is begun again when processes die meanwhile.
const (
	createTimeout  = 2 * time.Minute
	destroyTimeout = time.Minute
	maxReissues    = 5
	// logEvery is the shortest time between two lines about sandboxes that could not be made, and maxLogged bounds the
	// driver and the reason in one, each in bytes.
	logEvery  = 10 * time.Second
	maxLogged = 300
)

// Creation asks for a sandbox.
type Creation struct {
	Project string
	Spec    *sandboxv1.SandboxSpec
	// RequestID is the key of the making; empty for none.
	RequestID string
	// Run is the name of the run that asks; empty for none.
	Run string
	// Epoch is that under which the run is owned; 0 for none.
	Epoch int64
	// Timeout bounds the making. Zero is two minutes and the bound of the set-up script.
	Timeout time.Duration
}

// Create makes a sandbox and returns it when it is usable. With a request id the sandbox is made once: its creation
// continues when ctx ends, also in a later process, and a repeated call returns the same sandbox.
func (s *Sandboxes) Create(ctx context.Context, c Creation) (*Sandbox, error) {
	spec, err := s.complete(c.Spec)
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(c.Timeout, createTimeout+spec.GetSetupTimeout().AsDuration())
	req := effect.Request{Timeout: timeout, Reissue: true}
	id := idPrefix + resource.NewID()
	if c.RequestID != "" {
		req.Key = effect.Key{Project: c.Project, ID: c.RequestID}
		id = s.idOf(req.Key)
		if req.Hash, err = effectrpc.Hash(c.Spec); err != nil {
			return nil, err
		}
		req.Unique, req.Epoch = req.Key.OfRun(c.Run), c.Epoch
	}
	result, err := s.effects.Do(ctx, req, func(within context.Context, attempt effect.Attempt) ([]byte, error) {
		err := s.make(within, c.Project, id, spec, attempt)
		switch {
		case err == nil:
		case rpcerr.NotStarted(err): // What it had begun is removed before it is begun anew.
			err = effect.NotStarted(err)
		case rpcerr.Transient(err): // Its cause is another one, such as a store that is away.
		case errors.Is(context.Cause(within), context.DeadlineExceeded) && (c.RequestID != "" || ctx.Err() == nil):
			err = rpcerr.DeadlineExceeded("the sandbox was not made within %s; give it a longer timeout", timeout.Round(time.Millisecond))
		}
		return []byte(id), err
	})
	if err != nil {
		s.logRefusal(ctx, spec.GetDriver(), err)
		return nil, err
	}
	return s.Get(ctx, c.Project, string(result.Body))
}

// idOf is the id of the sandbox that is made under a key: the same in every process that makes it, so that what an
// earlier one left is found; another one than in any other installation on this machine.
func (s *Sandboxes) idOf(key effect.Key) string {
	return idPrefix + resource.DerivedID(s.installation, key.Project, key.ID)
}

// CancelCreate prevents or stops the creation of a sandbox. When it returns nil, nothing of the sandbox is left. It
// reports whether the creation had ended before; then it changes nothing.
func (s *Sandboxes) CancelCreate(ctx context.Context, project, requestID string) (ended bool, err error) {
	key := effect.Key{Project: project, ID: requestID}
	ended, err = s.effects.Cancel(ctx, key)
	if err != nil || ended {
		return ended, err
	}
	// The making, or an earlier process, may have begun it.
	_, err = s.Delete(ctx, project, s.idOf(key))
	if rpcerr.Code(err) == codes.NotFound {
		err = nil
	}
	return false, err
}

// logRefusal logs that a sandbox could not be made, unless the reason is a transient lack of room, or the caller has
// left. Runs retry while an engine is unreachable, so there is at most one line in logEvery.
func (s *Sandboxes) logRefusal(ctx context.Context, driver string, err error) {
	if ctx.Err() != nil || rpcerr.Code(err) == codes.ResourceExhausted {
		return
	}
	s.refused.Add(1)
	s.seldom.Do(func() {
		log := s.log.With("driver", headtail.Cut(driver, maxLogged), "reason", rpcerr.ReasonName(rpcerr.Reason(err)), "refused", s.refused.Swap(0))
		if !rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_SETUP_FAILED) { // That one quotes what the set-up script wrote.
			log = log.With("error", headtail.Cut(err.Error(), maxLogged))
		}
		log.Warn("a sandbox could not be made")
	})
}

// ReleaseRuns forgets which sandboxes were made for runs of a project, and cancels the making of others. Runs are ids.
// Sandboxes stay.
func (s *Sandboxes) ReleaseRuns(ctx context.Context, project string, runs []string) error {
	return s.effects.ReleaseRuns(ctx, project, runs...)
}

// idPrefix begins the ids of sandboxes, which are also the names of containers.
const idPrefix = "sb-"

// make makes a sandbox, or finds that it is made already.
func (s *Sandboxes) make(ctx context.Context, project, id string, spec *sandboxv1.SandboxSpec, attempt effect.Attempt) error {
	began := time.Now()
	s.background.Add(1) // also where the effect is cut short, its cleaning up is waited for
	defer s.background.Done()
	select {
	case s.creating <- struct{}{}:
		defer func() { <-s.creating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	queued := time.Since(began)
	e, fresh, err := s.begin(ctx, project, id, spec)
	if err != nil || !fresh {
		return err
	}
	defer func() {
		e.mu.Lock()
		e.making = false
		e.mu.Unlock()
	}()
	d := s.drivers[spec.GetDriver()]
	err = s.build(ctx, e, d, spec, func() *effectv1.Timing {
		return &effectv1.Timing{
			StartTime: timestamppb.New(began), EndTime: timestamppb.Now(), Queued: durationpb.New(queued), Working: durationpb.New(time.Since(began) - queued),
			Attempts: int32(1 + attempt.Reissued), Reissued: attempt.Reissued > 0, Reissues: int32(attempt.Reissued),
		}
	})
	if err == nil {
		return nil
	}
	// Nothing is left behind, whoever waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	if destroyErr := d.Destroy(ctx, id); destroyErr != nil {
		s.log.Error("cannot remove a sandbox that could not be made", "sandbox", e.id, "error", destroyErr)
		return err // the reconciler goes on
	}
	if moved, moveErr := s.moveWithRetry(ctx, e, Fail, func(b *Sandbox) { b.Reason = err.Error() }); moveErr != nil {
		s.log.Error("cannot write that a sandbox could not be made", "sandbox", e.id, "error", moveErr)
	} else if moved {
		s.forget(e)
	}
	return err
}

// begin writes down that a sandbox is being made; not fresh when it is there already.
func (s *Sandboxes) begin(ctx context.Context, project, id string, spec *sandboxv1.SandboxSpec) (_ *entry, fresh bool, err error) {
	now := time.Now()
	b := &Sandbox{
		Project: project, ID: id, Host: s.host, Spec: remembered(spec), State: Creating, Created: now, Changed: now,
		Lease: spec.GetLease().AsDuration(), LeaseEnd: now.Add(spec.GetLease().AsDuration()), Deadline: now.Add(spec.GetMaxLifetime().AsDuration()),
	}
	lack := ""
	if s.lack != nil {
		lack = s.lack()
	}
	s.mu.Lock()
	e := s.live[id]
	if e == nil {
		if lack != "" {
			s.mu.Unlock()
			return nil, false, driver.NoRoom(lack)
		}
		if s.cfg.MaxSandboxes > 0 && len(s.live) >= s.cfg.MaxSandboxes {
			s.mu.Unlock()
			return nil, false, rpcerr.SandboxQuota("sandboxes", s.cfg.MaxSandboxes, 2*time.Second,
				"%d sandboxes live already, which is the most that this service makes", s.cfg.MaxSandboxes)
		}
		e = &entry{id: id, box: b, making: true}
		s.live[id] = e
		s.mu.Unlock()
		if err := retryWhileStoreAway(ctx, func() error { return s.putNew(ctx, e, b) }); err != nil {
			s.forget(e)
			return nil, false, fmt.Errorf("write the record of %s: %w", b.Name(), err)
		}
		return e, true, nil
	}
	s.mu.Unlock()
	// An earlier process began it. What that left is removed, since a set-up may have run in part.
	moved, err := s.moveWithRetry(ctx, e, Remake, func(old *Sandbox) {
		b.Revision = old.Revision
		*old = *b
	})
	if err != nil || !moved {
		return e, false, err
	}
	if err := s.drivers[spec.GetDriver()].Destroy(ctx, id); err != nil {
		return nil, false, err
	}
	e.mu.Lock()
	e.making = true
	e.mu.Unlock()
	return e, true, nil
}

// putNew writes the record of a sandbox that is begun, in place of one that an earlier attempt left.
func (s *Sandboxes) putNew(ctx context.Context, e *entry, b *Sandbox) error {
	old, err := s.store.Load(ctx, b.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		b.Revision = 1
	case err != nil:
		return err
	default:
		b.Revision = old.Revision + 1
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.put(ctx, e, b)
}

// build makes the box, says hello to its guest, places files and runs the set-up. Timing says at its end how it went.
func (s *Sandboxes) build(ctx context.Context, e *entry, d driver.Driver, spec *sandboxv1.SandboxSpec, timing func() *effectv1.Timing) error {
	b := e.snapshot()
	asked := s.boxSpec(spec)
	asked.ID, asked.Deadline = b.ID, b.Deadline
	report, err := d.Create(ctx, asked)
	if spec.GetImage() != "" && rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE) {
		return rpcerr.In("spec.image", err)
	}
	if err != nil {
		return err
	}
	failpoint.Hit("sandboxd/after-create")
	b.Report = report
	c := s.connect(b)
	hello, err := c.Hello(ctx)
	if err == nil {
		err = s.unlessFull(prepare(ctx, c, spec))
	}
	if err == nil {
		err = ctx.Err() // A cancel that finds no sandbox to delete relies on this.
	}
	if err != nil {
		c.Close()
		return err
	}
	e.client.Store(c)
	moved, err := s.moveWithRetry(ctx, e, Made, func(made *Sandbox) {
		made.Report, made.BootID, made.Timing = report, hello.GetBootId(), timing()
		now := time.Now()
		made.LeaseEnd = now.Add(made.Lease)
		e.granted.Store(now.UnixNano())
		for _, note := range hello.GetNotes() {
			made.Report.Isolation.Weaker = appendNew(made.Report.Isolation.Weaker, note)
		}
	})
	if err == nil && !moved {
		err = notUsable(e.snapshot()) // deleted meanwhile
	}
	if err != nil {
		c.Close()
	}
	return err
}

// unlessFull is the error of a preparation, whose files or set-up may have failed for want of the disk's room. What it
// failed with is said, since it may be a fault that stays when there is room.
func (s *Sandboxes) unlessFull(err error) error {
	if err == nil || s.lack == nil {
		return err
	}
	switch rpcerr.Reason(err) { //nolint:exhaustive // all others have causes of their own
	case errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_SETUP_FAILED:
		if lack := s.lack(); lack != "" {
			return driver.NoRoom(lack + "; meanwhile " + err.Error())
		}
	}
	return err
}

// moveWithRetry is move with retries while the store is unreachable: the result of costly work is recorded when the
// store is reachable again.
func (s *Sandboxes) moveWithRetry(ctx context.Context, e *entry, a Action, change func(*Sandbox)) (moved bool, err error) {
	err = retryWhileStoreAway(ctx, func() error {
		moved, err = s.move(ctx, e, a, change)
		return err
	})
	return moved, err
}

// retryWhileStoreAway retries a write while the store is unreachable, until ctx ends.
func retryWhileStoreAway(ctx context.Context, write func() error) error {
	var away error
	for backoff := (retry.Backoff{First: 100 * time.Millisecond, Max: time.Second}); ; {
		err := write()
		switch {
		case err == nil, !rpcerr.StoreAway(err) && (away == nil || ctx.Err() == nil):
			return err
		case rpcerr.StoreAway(err):
			away = err
		}
		if backoff.Wait(ctx) != nil {
			return away // and not the end of ctx, which would be a failure of the sandbox
		}
	}
}

// boxSpec is what a driver is told of a specification, but for the id and the deadline.
func (s *Sandboxes) boxSpec(spec *sandboxv1.SandboxSpec) driver.Spec {
	return driver.Spec{
		Owner: s.owner(), Labels: spec.GetLabels(), Image: spec.GetImage(), OrphanTimeout: s.cfg.OrphanTimeout,
		Limits: limits(spec.GetLimits()), Workdir: spec.GetWorkdir(), User: spec.GetUser(), AllowUnisolated: spec.GetAllowUnisolated(), // complete has refused it where the operator does not allow it
	}
}

func appendNew(list []string, item string) []string {
	for _, have := range list {
		if have == item {
			return list
		}
	}
	return append(list, item)
}

func limits(l *sandboxv1.Limits) driver.Limits {
	return driver.Limits{
		MemoryBytes: l.GetMemoryBytes(), PIDs: l.GetPids(), CPUMillis: l.GetCpuMillis(), OpenFiles: l.GetOpenFiles(),
		FileSizeBytes: l.GetFileSizeBytes(), DiskBytes: l.GetDiskBytes(),
	}
}
