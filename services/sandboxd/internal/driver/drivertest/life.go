package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// Aged is a driver that lists one box alone, and as if it were older.
type Aged struct {
	driver.Driver
	ID string
	By time.Duration
}

// List implements driver.Driver.
func (a Aged) List(ctx context.Context, owner string) ([]driver.Observed, error) {
	boxes, err := a.Driver.List(ctx, owner)
	for _, box := range boxes {
		if box.ID == a.ID {
			box.Created = box.Created.Add(-a.By)
			return []driver.Observed{box}, err
		}
	}
	return nil, err
}

// life: boxes are created once, outlive the process that created them, and are gone when they are destroyed.
func life(t *testing.T, h Harness) {
	listed := func(t *testing.T, d driver.Driver, owner, id string) (driver.Observed, bool) {
		boxes, err := d.List(t.Context(), owner)
		require.NoError(t, err)
		for _, o := range boxes {
			if o.ID == id {
				return o, true
			}
		}
		return driver.Observed{}, false
	}
	t.Run("probe", func(t *testing.T) {
		t.Parallel()
		caps, err := h.New(t, t.TempDir()).Probe(t.Context())
		require.NoError(t, err)
		require.NoError(t, caps.Problem)
		assert.NotEmpty(t, caps.Isolation.Parts)
	})
	t.Run("a probe that was left is removed by whoever comes later", func(t *testing.T) {
		t.Parallel()
		dir, probe := t.TempDir(), driver.Probe()
		_, err := h.New(t, dir).Create(t.Context(), probe)
		require.NoError(t, err)
		later := h.New(t, dir)
		t.Cleanup(func() { assert.NoError(t, later.Destroy(context.Background(), probe.ID)) })
		require.NoError(t, driver.Sweep(t.Context(), Aged{Driver: later, ID: probe.ID}))
		_, there := listed(t, later, probe.Owner, probe.ID)
		assert.True(t, there, "somebody may measure with it")
		require.NoError(t, driver.Sweep(t.Context(), Aged{Driver: later, ID: probe.ID, By: time.Hour}))
		_, there = listed(t, later, probe.Owner, probe.ID)
		assert.False(t, there)
	})
	t.Run("create is idempotent by id", func(t *testing.T) {
		t.Parallel()
		d := h.New(t, t.TempDir())
		b := newBox(t, d, func(s *driver.Spec) { s.Labels = map[string]string{"a": "b"} })
		b.sh("touch here")
		report, err := d.Create(t.Context(), b.spec)
		require.NoError(t, err)
		assert.Equal(t, b.report, report)
		b.sh("test -e here")
		o, ok := listed(t, d, owner, b.spec.ID)
		require.True(t, ok)
		assert.True(t, o.Alive)
		assert.Equal(t, b.report, o.Report)
		assert.Equal(t, map[string]string{"a": "b"}, o.Labels)
		assert.WithinDuration(t, time.Now(), o.Created, time.Minute)
		_, ok = listed(t, d, "someone else", b.spec.ID)
		assert.False(t, ok, "boxes are listed by owner")
	})
	t.Run("bad specifications", func(t *testing.T) {
		t.Parallel()
		d := h.New(t, t.TempDir())
		bad := []driver.Spec{{ID: "../x"}, {ID: ""}, {ID: "ok", Workdir: "relative"}}
		if !h.OwnSystem {
			bad = append(bad, driver.Spec{ID: "ok", Workdir: "/usr/work"}, driver.Spec{ID: "ok", Workdir: "/"})
		}
		for _, spec := range bad {
			_, err := d.Create(t.Context(), spec)
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%+v: %v", spec, err)
		}
	})
	t.Run("destroy ends everything and may be repeated", func(t *testing.T) {
		t.Parallel()
		d := h.New(t, t.TempDir())
		b := newBox(t, d, nil)
		b.sh("setsid sleep 1000 >/dev/null 2>&1 & echo started")
		require.NoError(t, d.Destroy(t.Context(), b.spec.ID))
		_, ok := listed(t, d, owner, b.spec.ID)
		assert.False(t, ok)
		require.NoError(t, d.Destroy(t.Context(), b.spec.ID))
		require.NoError(t, d.Destroy(t.Context(), "never-was"))
		_, err := d.Connect(waittest.Context(t), b.spec.ID)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST), "%v", err)
		_, err = b.exec(&sandboxv1.ExecSpec{Argv: []string{"true"}})
		assert.Error(t, err)
	})
	t.Run("a later process takes boxes over with all that runs in them", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first := h.New(t, dir)
		b := newBox(t, first, nil)
		hello, err := b.client.Hello(t.Context())
		require.NoError(t, err)
		spec := counting("count", "until [ -e go ]; do sleep 0.01; done; echo result")
		cut := make(chan error, 1)
		go func() {
			_, err := b.run(b.client, "long", spec)
			cut <- err
		}()
		b.sh("for i in $(seq 3000); do [ -e count ] && exit 0; sleep 0.01; done; exit 1")
		b.client.Close()
		require.NoError(t, first.Close())
		require.Error(t, waittest.For(t, cut, "the end of the call whose connection was cut"))

		second := h.New(t, dir)
		o, ok := listed(t, second, owner, b.spec.ID)
		require.True(t, ok)
		assert.True(t, o.Alive)
		assert.Equal(t, b.report, o.Report)
		later := *b
		later.driver = second
		later.client = later.connect(hello.GetBootId())
		again, err := later.client.Hello(t.Context())
		require.NoError(t, err)
		assert.Equal(t, hello.GetBootId(), again.GetBootId())
		assert.Contains(t, again.GetKeys(), "long")
		later.sh("touch go")
		r, err := later.run(later.client, "long", spec)
		require.NoError(t, err)
		assert.Equal(t, "result\n", string(r.GetStdout()))
		assert.Equal(t, "ran\n", later.sh("cat count"))
		require.NoError(t, second.Destroy(t.Context(), b.spec.ID))
	})
	t.Run("a cut connection loses nothing", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, h.New(t, t.TempDir()), nil)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for i := range 10 {
			key := string(rune('a' + i))
			spec := counting("count-"+key, "echo out-"+key)
			_ = b.client.Once(ctx, func(api guestv1.GuestServiceClient) error {
				short, stop := context.WithTimeout(ctx, time.Duration(i)*300*time.Microsecond)
				defer stop()
				_, err := api.Run(short, &guestv1.RunRequest{Key: key, Spec: spec})
				return err
			})
			b.client.Close()
			b.client = b.connect("")
			r, err := b.run(b.client, key, spec)
			require.NoError(t, err)
			assert.Equal(t, "out-"+key+"\n", string(r.GetStdout()))
			assert.Equal(t, "ran\n", b.sh("cat count-%s", key))
		}
	})
	gone := func(t *testing.T, d driver.Driver, id string) {
		t.Helper()
		require.Eventually(t, func() bool { o, _ := listed(t, d, owner, id); return !o.Alive }, patience, 20*time.Millisecond)
	}
	t.Run("a box ends at its deadline with nobody alive", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first := h.New(t, dir)
		b := newBox(t, first, func(s *driver.Spec) { s.Deadline = time.Now().Add(20 * time.Second) })
		_, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "sleep 1000 >/dev/null 2>&1 &"}})
		if !rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST) { // on a slow machine the deadline comes first
			require.NoError(t, err)
		}
		b.client.Close()
		require.NoError(t, first.Close())
		second := h.New(t, dir)
		gone(t, second, b.spec.ID)
		require.NoError(t, second.Destroy(t.Context(), b.spec.ID))
	})
	t.Run("a box ends when there is no host for long", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first := h.New(t, dir)
		b := newBox(t, first, func(s *driver.Spec) { s.OrphanTimeout = 5 * time.Second })
		b.sh("true")
		b.client.Close()
		require.NoError(t, first.Close())
		second := h.New(t, dir)
		gone(t, second, b.spec.ID)
		_, err := second.Connect(waittest.Context(t), b.spec.ID)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST), "%v", err)
		require.NoError(t, second.Destroy(t.Context(), b.spec.ID))
	})
	t.Run("a creation that is given up leaves nothing", func(t *testing.T) {
		t.Parallel()
		d := h.New(t, t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := d.Create(ctx, driver.Spec{ID: "given-up", Owner: owner, Limits: small})
		if err == nil {
			require.NoError(t, d.Destroy(t.Context(), "given-up"))
			return
		}
		assert.True(t, errors.Is(err, context.Canceled) || ctx.Err() != nil)
		_, ok := listed(t, d, owner, "given-up")
		assert.False(t, ok)
	})
}
