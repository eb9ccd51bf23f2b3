package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// paperDriver creates boxes that are entries in a map, each with a guest that runs nothing and lets every command
// succeed.
type paperDriver struct {
	mu        sync.Mutex
	boxes     map[string]*paperBox
	destroyed []string
	refuse    error // of Destroy
	probe     func(context.Context) (driver.Capabilities, error)
	absent    func() error           // of Check and Create
	listing   func()                 // at the begin of List
	listed    func() driver.Observed // at the end of List, once: one more box
	hold      func(driver.Spec)      // called in Create
	run       func(string) *sandboxv1.ExecResult
}

type paperBox struct {
	spec  driver.Spec
	alive bool
	since time.Time
	guest *grpc.Server
}

func newPaper() *paperDriver { return &paperDriver{boxes: map[string]*paperBox{}} }

func (d *paperDriver) Name() string { return "paper" }
func (d *paperDriver) Close() error { return nil }

func (d *paperDriver) Probe(ctx context.Context) (driver.Capabilities, error) {
	if d.probe != nil {
		return d.probe(ctx)
	}
	return driver.Capabilities{}, nil
}

func (d *paperDriver) Check(context.Context, driver.Spec) error {
	if d.absent != nil {
		return d.absent()
	}
	return nil
}

func (d *paperDriver) Create(ctx context.Context, spec driver.Spec) (driver.Report, error) {
	if d.hold != nil {
		d.hold(spec)
	}
	if d.absent != nil {
		if err := d.absent(); err != nil {
			return driver.Report{}, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g := grpc.NewServer()
	guestv1.RegisterGuestServiceServer(g, &paperGuest{id: spec.ID, driver: d})
	d.boxes[spec.ID] = &paperBox{spec: spec, alive: true, since: time.Now(), guest: g}
	return driver.Report{Env: map[string]string{"PATH": "/bin"}, Workdir: "/work", User: "someone", GuestPath: "/guest"}, ctx.Err()
}

func (d *paperDriver) Connect(_ context.Context, id string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[id]
	if b == nil || !b.alive {
		return nil, driver.Lost(id, "")
	}
	ours, theirs := net.Pipe()
	go func() { _ = b.guest.Serve(&once{conn: theirs}) }()
	return ours, nil
}

func (d *paperDriver) Destroy(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return d.refuse
	}
	d.destroyed = append(d.destroyed, id)
	d.kill(id)
	delete(d.boxes, id)
	return nil
}

// kill ends a box's guest. The caller holds mu.
func (d *paperDriver) kill(id string) {
	if b := d.boxes[id]; b != nil && b.alive {
		b.alive = false
		b.guest.Stop()
	}
}

func (d *paperDriver) List(_ context.Context, owner string) ([]driver.Observed, error) {
	d.mu.Lock()
	if f := d.listing; f != nil {
		d.listing = nil
		d.mu.Unlock()
		f()
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	var out []driver.Observed
	for id, b := range d.boxes {
		if b.spec.Owner == owner {
			out = append(out, driver.Observed{ID: id, Alive: b.alive, Created: b.since})
		}
	}
	if f := d.listed; f != nil {
		d.listed = nil
		d.mu.Unlock()
		out = append(out, f())
		d.mu.Lock()
	}
	return out, nil
}

func (d *paperDriver) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boxes[id] != nil
}

// once is a listener of one connection.
type once struct {
	conn net.Conn
	mu   sync.Mutex
}

func (l *once) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l *once) Close() error   { return nil }
func (l *once) Addr() net.Addr { return &net.UnixAddr{} }

type paperGuest struct {
	guestv1.UnimplementedGuestServiceServer
	id     string
	driver *paperDriver
}

func (g *paperGuest) Hello(context.Context, *guestv1.HelloRequest) (*guestv1.HelloResponse, error) {
	return &guestv1.HelloResponse{BootId: "boot-" + g.id}, nil
}

func (g *paperGuest) Run(context.Context, *guestv1.RunRequest) (*guestv1.RunResponse, error) {
	if g.driver.run != nil {
		return &guestv1.RunResponse{Result: g.driver.run(g.id)}, nil
	}
	return &guestv1.RunResponse{Result: &sandboxv1.ExecResult{}}, nil
}

func (g *paperGuest) WriteFile(stream grpc.ClientStreamingServer[guestv1.WriteFileRequest, guestv1.WriteFileResponse]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return stream.SendAndClose(&guestv1.WriteFileResponse{})
		}
	}
}

func (g *paperGuest) RemoveFile(context.Context, *guestv1.RemoveFileRequest) (*guestv1.RemoveFileResponse, error) {
	return &guestv1.RemoveFileResponse{}, nil
}

// house is an installation: the parts that outlive a process, and the process.
type house struct {
	*testing.T
	driver *paperDriver
	store  lifecycle.Store
	ledger effect.Ledger
	max    int
	lack   string
	owners int
	boxes  *lifecycle.Sandboxes
	stop   func()
	log    lockedLog
}

// lockedLog is a log that may be read during writes.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// bubble runs f in a bubble of time with a running installation.
func bubble(t *testing.T, f func(h *house)) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		require.NoError(t, err)
		store, err := lifecycle.NewStore(t.Context(), db)
		require.NoError(t, err)
		h := &house{T: t, driver: newPaper(), store: store, ledger: &memory.Ledger{}}
		h.start()
		f(h)
		h.driver.mu.Lock()
		for id := range h.driver.boxes {
			h.driver.kill(id)
		}
		h.driver.mu.Unlock()
		h.stop()
		require.NoError(t, db.Close())
	})
}

func (h *house) start() { h.startAt("here") }

func (h *house) startAt(host string) {
	h.Helper()
	h.owners++
	var err error
	h.boxes, err = lifecycle.New(h.Context(), lifecycle.Config{Driver: "paper", MaxSandboxes: h.max, MaxCreating: 4, OrphanTimeout: time.Hour}, lifecycle.Deps{
		Drivers: map[string]driver.Driver{"paper": h.driver}, Store: h.store, Host: host, Ledger: h.ledger,
		Owner: string(rune('a' + h.owners)), Lack: func() string { return h.lack }, Logger: slog.New(slog.NewTextHandler(&h.log, nil)),
	})
	require.NoError(h, err)
	ctx, cancel := context.WithCancel(h.Context())
	done := make(chan error, 1)
	go func() { done <- h.boxes.Run(ctx) }()
	h.stop = func() {
		cancel()
		require.NoError(h, <-done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Context()), time.Second)
		defer cancel()
		_ = h.boxes.Close(ctx)
	}
}

func (h *house) create(spec *sandboxv1.SandboxSpec, key string) *lifecycle.Sandbox {
	h.Helper()
	b, err := h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", Spec: spec, RequestID: key})
	require.NoError(h, err)
	return b
}

func (h *house) state(id string) lifecycle.State {
	h.Helper()
	b, err := h.boxes.Get(h.Context(), "p", id)
	require.NoError(h, err)
	return b.State
}

func (h *house) use(id string) error {
	return h.boxes.Use(h.Context(), "p", id, func(c *client.Client) error {
		_, err := c.Hello(h.Context())
		return err
	})
}

func lease(d time.Duration) *sandboxv1.SandboxSpec {
	return &sandboxv1.SandboxSpec{Lease: durationpb.New(d)}
}

func TestALeaseEndsUnlessItIsRenewedOrUsed(t *testing.T) {
	bubble(t, func(h *house) {
		left, renewed, used := h.create(lease(2*time.Minute), ""), h.create(lease(2*time.Minute), ""), h.create(lease(2*time.Minute), "")
		for range 4 {
			time.Sleep(50 * time.Second)
			missing, earliest, err := h.boxes.Renew(h.Context(), "p", []string{renewed.ID, "none"}, 0)
			require.NoError(t, err)
			assert.Equal(t, []string{"none"}, missing)
			assert.Equal(t, time.Now().Add(2*time.Minute).UnixNano(), earliest.UnixNano())
			require.NoError(t, h.use(used.ID))
		}
		assert.Equal(t, lifecycle.Deleted, h.state(left.ID))
		assert.False(t, h.driver.has(left.ID))
		assert.True(t, rpcerr.Is(h.use(left.ID), errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED))
		assert.ErrorContains(t, h.use(left.ID), "lease")
		assert.Equal(t, lifecycle.Ready, h.state(renewed.ID))
		assert.Equal(t, lifecycle.Ready, h.state(used.ID))
		time.Sleep(3 * time.Minute)
		assert.Equal(t, lifecycle.Deleted, h.state(renewed.ID))
		assert.Equal(t, lifecycle.Deleted, h.state(used.ID))
	})
}

// Only leases of earlier processes wait until their holders had time to come back.
func TestALeaseThatAYoungProcessGrantedEndsInTime(t *testing.T) {
	bubble(t, func(h *house) {
		earlier := h.create(lease(20*time.Second), "")
		h.stop()
		h.start()
		created, renewed := h.create(lease(20*time.Second), ""), h.create(lease(time.Hour), "")
		_, _, err := h.boxes.Renew(h.Context(), "p", []string{renewed.ID}, 20*time.Second)
		require.NoError(t, err)
		time.Sleep(40 * time.Second)
		assert.Equal(t, lifecycle.Deleted, h.state(created.ID))
		assert.Equal(t, lifecycle.Deleted, h.state(renewed.ID))
		assert.Equal(t, lifecycle.Ready, h.state(earlier.ID))
		time.Sleep(3 * time.Minute)
		assert.Equal(t, lifecycle.Deleted, h.state(earlier.ID))
	})
}

func TestASandboxInUseKeepsItsLease(t *testing.T) {
	bubble(t, func(h *house) {
		b := h.create(lease(time.Minute), "")
		require.NoError(t, h.boxes.Use(h.Context(), "p", b.ID, func(*client.Client) error {
			time.Sleep(time.Hour)
			return nil
		}))
		assert.Equal(t, lifecycle.Ready, h.state(b.ID))
	})
}

func TestALifetimeEndsWhateverIsRenewed(t *testing.T) {
	bubble(t, func(h *house) {
		b := h.create(&sandboxv1.SandboxSpec{MaxLifetime: durationpb.New(5 * time.Minute)}, "")
		for range 7 {
			_, _, err := h.boxes.Renew(h.Context(), "p", []string{b.ID}, time.Hour)
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
		assert.Equal(t, lifecycle.Deleted, h.state(b.ID))
	})
}

// The machine sleeps for longer than a lease, and the first thing after waking is a look at the leases.
func TestLeasesThatRanOutInASleepOfTheMachineMayBeRenewedFirst(t *testing.T) {
	bubble(t, func(h *house) {
		left, renewed := h.create(lease(10*time.Minute), ""), h.create(lease(10*time.Minute), "")
		time.Sleep(5 * time.Minute)
		for range 2 {
			h.driver.mu.Lock()
			h.driver.listing = func() { time.Sleep(time.Hour) }
			h.driver.mu.Unlock()
			time.Sleep(time.Hour + 2*time.Minute)
			assert.Equal(t, lifecycle.Ready, h.state(renewed.ID))
			_, _, err := h.boxes.Renew(h.Context(), "p", []string{renewed.ID}, 0)
			require.NoError(t, err)
		}
		assert.Equal(t, lifecycle.Ready, h.state(left.ID))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, lifecycle.Deleted, h.state(left.ID), "its holder did not come back")
		assert.Equal(t, lifecycle.Ready, h.state(renewed.ID))
		require.NoError(t, h.use(renewed.ID), "the guest is the same one")
	})
}

func TestLeasesThatRanOutWhileNoProcessServedMayBeRenewedFirst(t *testing.T) {
	bubble(t, func(h *house) {
		left, renewed := h.create(lease(time.Minute), ""), h.create(lease(time.Minute), "")
		h.stop()
		time.Sleep(10 * time.Minute)
		h.start()
		time.Sleep(2*time.Minute + 30*time.Second)
		assert.Equal(t, lifecycle.Ready, h.state(left.ID), "longer than any holder takes to renew")
		_, _, err := h.boxes.Renew(h.Context(), "p", []string{renewed.ID}, 10*time.Minute)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Equal(t, lifecycle.Deleted, h.state(left.ID))
		assert.Equal(t, lifecycle.Ready, h.state(renewed.ID))
		require.NoError(t, h.use(renewed.ID), "the guest is the same one")
	})
}

func TestASandboxThatIsLostByMemorySaysSo(t *testing.T) {
	bubble(t, func(h *house) {
		b := h.create(lease(time.Hour), "")
		err := h.boxes.Use(h.Context(), "p", b.ID, func(*client.Client) error { return driver.Lost(b.ID, driver.OutOfMemory) })
		require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST), "%v", err)
		require.ErrorContains(t, err, "is lost: oom")
		lost, err := h.boxes.Get(h.Context(), "p", b.ID)
		require.NoError(t, err)
		assert.Equal(t, "oom", lost.Reason)
	})
}

func TestBoxesThatDiedAreFound(t *testing.T) {
	bubble(t, func(h *house) {
		b := h.create(lease(time.Hour), "")
		h.driver.mu.Lock()
		h.driver.kill(b.ID)
		h.driver.mu.Unlock()
		time.Sleep(time.Minute)
		assert.Equal(t, lifecycle.Lost, h.state(b.ID))
		assert.False(t, h.driver.has(b.ID), "what is left is cleared away")
		assert.True(t, rpcerr.Is(h.use(b.ID), errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST))
		gone, err := h.boxes.Delete(h.Context(), "p", b.ID)
		require.NoError(t, err)
		assert.Equal(t, lifecycle.Deleted, gone.State)
	})
}

func TestABoxThatBecomesReadyWhileOthersAreListedIsNotLost(t *testing.T) {
	bubble(t, func(h *house) {
		made := make(chan string, 1)
		h.driver.mu.Lock()
		h.driver.listed = func() driver.Observed {
			b := h.create(lease(time.Hour), "")
			made <- b.ID
			return driver.Observed{ID: b.ID, Created: b.Created} // As it was a moment before it was ready.
		}
		h.driver.mu.Unlock()
		time.Sleep(time.Minute)
		id := waittest.For(t, made, "a box that is made while others are listed")
		assert.Equal(t, lifecycle.Ready, h.state(id))
		require.NoError(t, h.use(id))
	})
}

func TestBoxesWithoutARecordAreRemovedAndOnlyOurs(t *testing.T) {
	bubble(t, func(h *house) {
		ours, err := h.store.Installation(h.Context())
		require.NoError(t, err)
		for id, owner := range map[string]string{"orphan": ours + ".here", "foreign": "someone else"} {
			_, err := h.driver.Create(h.Context(), driver.Spec{ID: id, Owner: owner})
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		assert.False(t, h.driver.has("orphan"))
		assert.True(t, h.driver.has("foreign"))
	})
}

func TestWhatAKilledMeasurementLeftIsRemoved(t *testing.T) {
	bubble(t, func(h *house) {
		probe := driver.Probe()
		_, err := h.driver.Create(t.Context(), probe)
		require.NoError(h, err)
		time.Sleep(driver.ProbeAge / 2)
		assert.True(h, h.driver.has(probe.ID), "somebody may measure with it")
		time.Sleep(2 * driver.ProbeAge)
		assert.False(h, h.driver.has(probe.ID))

		h.stop()
		_, err = h.driver.Create(t.Context(), probe)
		require.NoError(h, err)
		time.Sleep(2 * driver.ProbeAge)
		h.start()
		synctest.Wait()
		assert.False(h, h.driver.has(probe.ID), "a start does so at once")
	})
}

func TestACreationThatDiedWithItsProcessIsDoneAgain(t *testing.T) {
	bubble(t, func(h *house) {
		// A process that ends during a creation: its claim stays open, and its boxes stay.
		reached, never := make(chan string, 1), make(chan struct{})
		h.driver.run = func(id string) *sandboxv1.ExecResult {
			reached <- id
			<-never
			return &sandboxv1.ExecResult{}
		}
		spec := &sandboxv1.SandboxSpec{Setup: "true"}
		gone := make(chan error, 1)
		go func() {
			_, err := h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", Spec: spec, RequestID: "key"})
			gone <- err
		}()
		id := <-reached
		before, err := h.store.Load(h.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, lifecycle.Creating, before.State, "the record is there before the box")
		h.stop()
		require.Error(t, <-gone)
		close(never)

		h.driver.run = nil
		h.start()
		b := h.create(spec, "key")
		assert.Equal(t, id, b.ID, "the same key makes the same sandbox")
		assert.Equal(t, lifecycle.Ready, b.State)
		assert.Contains(t, h.driver.destroyed, id, "a half-made one is not used")
	})
}

func TestWhatAKilledProcessLeftIsFinished(t *testing.T) {
	bubble(t, func(h *house) {
		deleting, creating := h.create(lease(time.Hour), ""), h.create(lease(time.Hour), "")
		h.stop()
		for b, state := range map[*lifecycle.Sandbox]lifecycle.State{deleting: lifecycle.Deleting, creating: lifecycle.Creating} {
			b.State = state
			b.Revision++
			require.NoError(t, h.store.Put(h.Context(), b))
		}
		h.start()
		time.Sleep(time.Minute)
		assert.Equal(t, lifecycle.Deleted, h.state(deleting.ID))
		assert.Equal(t, lifecycle.Creating, h.state(creating.ID), "its caller may come back")
		time.Sleep(15 * time.Minute)
		assert.Equal(t, lifecycle.Deleted, h.state(creating.ID))
		assert.Empty(t, h.driver.boxes)
	})
}

func TestARemovalThatFailsIsTriedAgain(t *testing.T) {
	bubble(t, func(h *house) {
		b := h.create(lease(time.Hour), "")
		h.driver.mu.Lock()
		h.driver.refuse = errors.New("busy")
		h.driver.mu.Unlock()
		got, err := h.boxes.Delete(h.Context(), "p", b.ID)
		require.NoError(t, err)
		assert.Equal(t, lifecycle.Deleting, got.State)
		h.driver.mu.Lock()
		h.driver.refuse = nil
		h.driver.mu.Unlock()
		time.Sleep(time.Minute)
		assert.Equal(t, lifecycle.Deleted, h.state(b.ID))
	})
}

func TestAKeyedCreationOutlivesItsCaller(t *testing.T) {
	bubble(t, func(h *house) {
		ctx, leave := context.WithCancel(h.Context())
		h.driver.hold = func(driver.Spec) { leave(); time.Sleep(time.Second) }
		_, err := h.boxes.Create(ctx, lifecycle.Creation{Project: "p", Spec: &sandboxv1.SandboxSpec{}, RequestID: "key"})
		require.ErrorIs(t, err, context.Canceled)
		b := h.create(&sandboxv1.SandboxSpec{}, "key")
		assert.Equal(t, lifecycle.Ready, b.State)
		assert.Len(t, h.driver.boxes, 1)

		ctx, leave = context.WithCancel(h.Context())
		defer leave()
		_, err = h.boxes.Create(ctx, lifecycle.Creation{Project: "p", Spec: &sandboxv1.SandboxSpec{}})
		require.Error(t, err, "one without a key ends with its caller")
		synctest.Wait()
		assert.Len(t, h.driver.boxes, 1)
	})
}

func TestDeletingWhileItIsMade(t *testing.T) {
	bubble(t, func(h *house) {
		id := make(chan string, 1)
		h.driver.hold = func(s driver.Spec) { id <- s.ID; time.Sleep(time.Second) }
		made := make(chan error, 1)
		go func() {
			_, err := h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", Spec: &sandboxv1.SandboxSpec{}, RequestID: "key"})
			made <- err
		}()
		name := <-id
		got, err := h.boxes.Delete(h.Context(), "p", name)
		require.NoError(t, err)
		assert.Equal(t, lifecycle.Deleted, got.State)
		assert.True(t, rpcerr.Is(<-made, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_TERMINATED))
		assert.Empty(t, h.driver.boxes)
	})
}

// TestACancelledCreationLeavesNothing: whenever the cancel arrives, no sandbox is created under the key, and the
// remains are removed when the cancel answers. A finished sandbox stays.
func TestACancelledCreationLeavesNothing(t *testing.T) {
	create := func(h *house, key string) <-chan error {
		made := make(chan error, 1)
		go func() {
			_, err := h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", Spec: &sandboxv1.SandboxSpec{Setup: "true"}, RequestID: key})
			made <- err
		}()
		return made
	}
	cancel := func(h *house, key string) (ended bool) {
		ended, err := h.boxes.CancelCreate(h.Context(), "p", key)
		require.NoError(h, err)
		return ended
	}
	cancelled := errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED
	bubble(t, func(h *house) {
		assert.False(t, cancel(h, "unseen"))
		assert.Equal(t, cancelled, rpcerr.Reason(<-create(h, "unseen")))
		assert.Empty(t, h.driver.boxes)

		h.driver.hold = func(driver.Spec) { time.Sleep(time.Minute) }
		made := create(h, "in the driver")
		time.Sleep(time.Second)
		assert.False(t, cancel(h, "in the driver"))
		assert.Equal(t, cancelled, rpcerr.Reason(<-made))
		time.Sleep(time.Hour)
		assert.Empty(t, h.driver.boxes, "what the driver made meanwhile is removed")
		assert.False(t, cancel(h, "in the driver"), "a cancel may be repeated")

		h.driver.hold, h.driver.run = nil, func(string) *sandboxv1.ExecResult { time.Sleep(time.Minute); return &sandboxv1.ExecResult{} }
		made = create(h, "in its set-up")
		time.Sleep(time.Second)
		assert.False(t, cancel(h, "in its set-up"))
		assert.Empty(t, h.driver.boxes)
		assert.Equal(t, cancelled, rpcerr.Reason(<-made))

		made = create(h, "of a process that died")
		time.Sleep(time.Second)
		h.stop()
		require.Error(t, <-made)
		h.driver.run = nil
		h.start()
		assert.False(t, cancel(h, "of a process that died"))
		assert.Empty(t, h.driver.boxes)

		require.NoError(t, <-create(h, "made"))
		assert.True(t, cancel(h, "made"))
		assert.Len(t, h.driver.boxes, 1)
		time.Sleep(time.Minute) // The guests' commands end.
	})
}

func TestACreationSaysWhereItsTimeWent(t *testing.T) {
	bubble(t, func(h *house) {
		h.driver.hold = func(driver.Spec) { time.Sleep(time.Minute) }
		keys := []string{"one", "two", "three", "four", "five"}
		var all sync.WaitGroup
		for _, key := range keys {
			all.Go(func() { h.create(lease(time.Hour), key) })
		}
		all.Wait()
		var queued, working time.Duration
		for _, key := range keys {
			timing := h.create(lease(time.Hour), key).Timing
			queued += timing.GetQueued().AsDuration()
			working += timing.GetWorking().AsDuration()
			assert.EqualValues(t, 1, timing.GetAttempts())
			assert.Equal(t, timing.GetQueued().AsDuration()+timing.GetWorking().AsDuration(), timing.GetEndTime().AsTime().Sub(timing.GetStartTime().AsTime()))
		}
		assert.Equal(t, time.Minute, queued, "four are made at once, the fifth waits")
		assert.Equal(t, 5*time.Minute, working)
	})
}

func TestACreationEndsWithItsTime(t *testing.T) {
	bubble(t, func(h *house) {
		h.driver.run = func(string) *sandboxv1.ExecResult { time.Sleep(time.Minute); return &sandboxv1.ExecResult{} }
		ask := lifecycle.Creation{Project: "p", Spec: &sandboxv1.SandboxSpec{Setup: "true"}, RequestID: "key", Timeout: 10 * time.Second}
		for range 2 {
			_, err := h.boxes.Create(h.Context(), ask)
			assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, rpcerr.Reason(err), "%v", err)
			require.ErrorContains(t, err, "10s")
			ask.Timeout = 0 // It is not part of the content.
		}
		time.Sleep(time.Hour) // The guest's command ends.
		assert.Empty(t, h.driver.boxes)
	})
}

func TestOldRecordsAreForgotten(t *testing.T) {
	bubble(t, func(h *house) {
		b := h.create(lease(time.Hour), "")
		_, err := h.boxes.Delete(h.Context(), "p", b.ID)
		require.NoError(t, err)
		time.Sleep(23 * time.Hour)
		assert.Equal(t, lifecycle.Deleted, h.state(b.ID))
		time.Sleep(2 * time.Hour)
		_, err = h.boxes.Get(h.Context(), "p", b.ID)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)
	})
}

// Without space a new sandbox is refused for now, existing ones continue, and the same key creates it later.
func TestNoSandboxIsMadeWithoutRoom(t *testing.T) {
	bubble(t, func(h *house) {
		lives := h.create(&sandboxv1.SandboxSpec{}, "first")
		h.lack = "the disk is nearly full"
		_, err := h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", Spec: &sandboxv1.SandboxSpec{}, RequestID: "second"})
		require.True(h, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)
		require.ErrorContains(h, err, "the disk is nearly full")
		assert.Positive(h, rpcerr.RetryAfter(err))
		again, err := h.boxes.Get(h.Context(), "p", lives.ID)
		require.NoError(h, err)
		assert.Equal(h, lifecycle.Ready, again.State)
		h.lack = ""
		h.create(&sandboxv1.SandboxSpec{}, "second")
	})
}

// A disk that becomes full during the preparation of a sandbox fails its set-up: the sandbox is created again when
// there is space.
func TestASandboxThatADiskFailsIsMadeLater(t *testing.T) {
	bubble(t, func(h *house) {
		h.driver.run = func(string) *sandboxv1.ExecResult {
			h.lack = "the disk is full now"
			return &sandboxv1.ExecResult{ExitCode: new(int32(1)), Stderr: []byte("no space left on device")}
		}
		_, err := h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", Spec: &sandboxv1.SandboxSpec{Setup: "true"}, RequestID: "key"})
		require.True(h, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)
		require.ErrorContains(h, err, "the disk is full now")
		require.ErrorContains(h, err, "the set-up script failed: exit code 1: no space left on device", "it may have a fault of its own")
		h.lack, h.driver.run = "", nil
		h.create(&sandboxv1.SandboxSpec{Setup: "true"}, "key")
	})
}

// Two processes share the records, and each has its own boxes, perhaps in one engine.
func TestAHostLeavesTheBoxesOfOthersAlone(t *testing.T) {
	bubble(t, func(h *house) {
		here, stop := h.create(lease(time.Hour), ""), h.stop
		first := h.boxes
		h.startAt("there")
		there := h.create(lease(time.Hour), "")
		time.Sleep(time.Minute)
		assert.Len(t, h.driver.boxes, 2, "neither is taken for an orphan")
		assert.Empty(t, h.driver.destroyed)

		assert.Equal(t, lifecycle.Ready, h.state(here.ID), "all records are seen")
		require.ErrorContains(t, h.use(here.ID), "is on another host")
		_, err := h.boxes.Delete(h.Context(), "p", here.ID)
		require.ErrorContains(t, err, "is on another host")
		require.NoError(t, h.use(there.ID))

		h.stop()
		h.stop, h.boxes = stop, first
		assert.Equal(t, lifecycle.Ready, h.state(here.ID))
	})
}

// A sandbox that another host created again, since it considered this one dead, belongs to that host.
func TestASandboxThatAnotherHostTookOverIsLetGo(t *testing.T) {
	bubble(t, func(h *house) {
		b := h.create(lease(time.Hour), "")
		b.Host = "there"
		b.Revision++
		require.NoError(t, h.store.Put(h.Context(), b))
		_, _, err := h.boxes.Renew(h.Context(), "p", []string{b.ID}, 0)
		require.ErrorIs(t, err, lifecycle.ErrChanged)
		synctest.Wait()
		require.ErrorContains(t, h.use(b.ID), "is on another host")
		time.Sleep(time.Minute)
		assert.Contains(t, h.driver.destroyed, b.ID, "what is left of it here is removed")
		now, err := h.store.Load(h.Context(), b.ID)
		require.NoError(t, err)
		assert.Equal(t, "there", now.Host)
		assert.Equal(t, lifecycle.Ready, now.State)
	})
}
