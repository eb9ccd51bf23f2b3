package docker

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// comeTimeout bounds the start of a container and the wait for its guest, which take a second, and far longer on a busy
// machine.
const comeTimeout = 90 * time.Second

// defaultDisk bounds the data that is written in a container if the specification sets no bound.
const defaultDisk = 10 << 30

// Create makes a box, or returns the one of the same id.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Report, error) {
	if err := check(spec); err != nil {
		return driver.Report{}, err
	}
	return d.boxes.Create(ctx, spec.ID, func() (driver.Report, error) {
		image, err := d.images.find(ctx, spec.Image)
		if err != nil {
			return driver.Report{}, err
		}
		spec.Workdir = path.Clean(cmp.Or(spec.Workdir, image.workdir))
		spec.User = cmp.Or(spec.User, image.user)
		spec.Limits.DiskBytes = cmp.Or(spec.Limits.DiskBytes, defaultDisk)
		made, err := d.make(ctx, spec, image)
		if err != nil {
			err = cmp.Or(d.engine.left(ctx), d.full(ctx, err), err)
		}
		return made, err
	})
}

// full is the error of a box that an engine could not make because the disk is full, which the engine reports only as
// text. It is nil for all other errors.
func (d *Driver) full(ctx context.Context, err error) error {
	can, away := d.engine.ready(ctx)
	if away != nil || !rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNUSABLE) {
		return nil
	}
	if lack := d.space.With(can.root, d.boxes.Dir()).Lack(); lack != "" {
		return driver.NoRoom(lack)
	}
	return nil
}

// check rejects what no container can be.
func check(spec driver.Spec) error {
	if spec.Workdir != "" && !path.IsAbs(spec.Workdir) {
		return rpcerr.InvalidField("spec.workdir", "%q is not an absolute path", spec.Workdir)
	}
	if dir := path.Clean(spec.Workdir); dir == "/.evalfleet" || strings.HasPrefix(dir, "/.evalfleet/") {
		return rpcerr.InvalidField("spec.workdir", "/.evalfleet is the platform's; choose another path")
	}
	return nil
}

// make makes the folder, the container and its record, in this order, and waits for the guest.
func (d *Driver) make(ctx context.Context, spec driver.Spec, image settings) (driver.Report, error) {
	can, err := d.engine.ready(ctx)
	if err != nil {
		return driver.Report{}, err
	}
	if err := d.isolates(spec, can, image); err != nil {
		return driver.Report{}, err
	}
	if lack := d.space.With(can.root, d.boxes.Dir()).Lack(); lack != "" {
		return driver.Report{}, driver.NoRoom(lack)
	}
	rec := &record{Record: boxstore.NewRecord(spec)}
	if err := os.MkdirAll(d.boxes.Folder(spec.ID), 0o700); err != nil {
		return driver.Report{}, fmt.Errorf("make the folder of a box: %w", err)
	}
	if err := d.boxes.Write(spec.ID, rec); err != nil {
		return driver.Report{}, err
	}
	if err := makeControl(d.boxes.Control(spec.ID), specification(spec), can.remapped); err != nil {
		return driver.Report{}, err
	}
	failpoint.Hit("sandboxd/docker-folder")
	id, quota, err := d.createContainer(ctx, spec, image, can)
	if err != nil {
		return driver.Report{}, err
	}
	failpoint.Hit("sandboxd/docker-container")
	first, err := d.start(ctx, spec.ID, id)
	if err != nil {
		return driver.Report{}, err
	}
	failpoint.Hit("sandboxd/docker-started")
	writes := diskQuota
	if !quota {
		if writes, err = d.measures(ctx, id, first); err != nil {
			return driver.Report{}, err
		}
	}
	if writes == diskUnmeasured && !spec.AllowUnisolated {
		return driver.Report{}, rpcerr.IsolationUnavailable("disk quota",
			"the Docker Engine at %s cannot bound what a sandbox writes, as its storage (%s) has no quotas here, and this server cannot measure it; run it as root in the engine's process namespace, use another driver, or allow it with --allow-unisolated", d.cfg.Host, can.storage)
	}
	rec.Container, rec.Ready, rec.Report = id, true, d.report(spec, image, can, writes)
	if !quota {
		rec.DiskBytes = spec.Limits.DiskBytes
	}
	rec.Report.Isolation.Unisolated = needed(spec, can) != "" || writes == diskUnmeasured || len(image.volumes) > 0
	return rec.Report, d.boxes.Write(spec.ID, rec)
}

// measures returns how far the data that a container writes can be measured. An error leaves that unknown.
func (d *Driver) measures(ctx context.Context, id string, first int) (disk, error) {
	if seen, err := d.sees(first); err != nil || !seen {
		return diskUnmeasured, err
	}
	layer, err := d.engine.layer(ctx, id)
	switch {
	case err == nil:
		return diskMeasured, unix.Close(layer)
	case box.Transient(err) || rpcerr.Reason(err) != errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return diskUnmeasured, err
	}
	return diskBytesMeasured, nil
}

// isolates rejects a box that would lack a part of its isolation, unless the spec allows that.
func (d *Driver) isolates(spec driver.Spec, can facts, image settings) error {
	if spec.AllowUnisolated {
		return nil
	}
	if part := needed(spec, can); part != "" {
		return rpcerr.IsolationUnavailable(part,
			"the Docker Engine at %s cannot isolate a sandbox: %s is missing; give its kernel that cgroup, use another driver, or allow it with --allow-unisolated", d.cfg.Host, part)
	}
	if len(image.volumes) > 0 {
		return rpcerr.IsolationUnavailable("disk quota",
			"the image %s declares volumes (%s), and what is written to them is neither bounded nor measured; use an image without VOLUME, or allow it with --allow-unisolated",
			image.name, strings.Join(image.volumes, ", "))
	}
	return nil
}

// quotaState is the observed support of an engine for disk quotas.
type quotaState struct {
	has      atomic.Bool  // it has set a quota
	refusals atomic.Int32 // how many containers it made only without one
}

// quotaRefusals is after how many refusals an engine is no longer asked for a quota.
const quotaRefusals = 3

// createContainer creates the container. quota reports that the data written in it is bounded, which an engine may
// refuse. The engine's answer does not distinguish a refusal from a failure, so it is asked again without a quota; an
// engine that has ever set a quota is never asked to go without.
func (d *Driver) createContainer(ctx context.Context, spec driver.Spec, image settings, can facts) (id string, quota bool, err error) {
	if err := d.guest.Stage(); err != nil {
		return "", false, err
	}
	config, bounds := d.configuration(spec, image), d.bounds(spec, can)
	create := func() (container.CreateResponse, error) {
		return d.engine.api.ContainerCreate(ctx, config, bounds, nil, nil, containerName(spec.ID))
	}
	if !d.quota.has.Load() && d.quota.refusals.Load() >= quotaRefusals {
		bounds.StorageOpt = nil
	}
	made, err := create()
	if err != nil && bounds.StorageOpt != nil {
		if made, err = create(); err != nil && !d.quota.has.Load() {
			bounds.StorageOpt = nil
			if made, err = create(); err == nil {
				d.quota.refusals.Add(1)
			}
		}
	}
	quota = bounds.StorageOpt != nil
	if quota && err == nil {
		d.quota.has.Store(true)
	}
	return made.ID, quota, d.engine.kind(ctx, "make a container", err)
}

// guestState is what is known of the guests of a driver's containers. If the first guest does not dial in time, the
// engine does not see our folder; once any guest has dialled, a late one means that the machine is slow, which is
// transient.
type guestState struct {
	patience time.Duration // how long to wait for a guest whose container runs
	came     atomic.Bool   // a guest has dialled
}

// start starts a container and waits until its guest has dialled. It returns the id of the container's first process.
func (d *Driver) start(ctx context.Context, boxID, id string) (first int, err error) {
	ctx, cancel := context.WithTimeout(ctx, comeTimeout)
	defer cancel()
	known := make(chan func(int) bool, 1) // the check of who may dial, once the process is known
	admit := sync.OnceValue(func() func(int) bool { return <-known })
	open, err := d.boxes.Listen(boxID, func(pid int) bool { return admit()(pid) })
	if err != nil {
		return 0, err
	}

	words, err := d.listenTo(ctx, id)
	if err != nil {
		known <- nobody
		return 0, err
	}
	defer words.close()
	exited, failed := d.engine.api.ContainerWait(ctx, id, container.WaitConditionNextExit)
	err = d.engine.kind(ctx, "start a container", d.engine.api.ContainerStart(ctx, id, container.StartOptions{}))
	var now *found
	if err == nil {
		now, err = d.engine.inspect(ctx, boxID)
	}
	if err == nil && now == nil {
		err = driver.Lost(boxID, "")
	}
	if err != nil {
		known <- nobody
		return 0, err
	}
	known <- isGuest(now.pid)
	coming, late := context.WithTimeout(ctx, d.guests.patience)
	defer late()
	select {
	case <-open.Connected():
		d.guests.came.Store(true)
		return now.pid, nil
	case end := <-exited:
		if end.StatusCode == guest.ExitTransient {
			return 0, driver.Shortage(fmt.Errorf("the guest could not start; it said: %s", words.said())) //nolint:err113 // It has no kind but that.
		}
		return 0, rpcerr.EngineUnusable("docker", d.cfg.Host, "the guest ended with code %d while it started; it said: %s", end.StatusCode, words.said())
	case err := <-failed:
		return 0, d.engine.kind(ctx, "wait for a container", err)
	case <-coming.Done():
		if d.guests.came.Load() {
			return 0, rpcerr.EngineUnavailable("docker", d.cfg.Host, backSoon, "the guest did not come, as others did before: %w; this machine or its engine may be too busy", coming.Err())
		}
		return 0, rpcerr.EngineUnusable("docker", d.cfg.Host, "the guest did not come: %w; the engine must see the folder %s under that path; the guest said: %s", coming.Err(), d.boxes.Dir(), words.said())
	}
}

// nobody admits no process: it is for a box that could not be made.
func nobody(int) bool { return false }

// words is the output of a guest while it starts.
type words struct {
	close func()
	done  chan struct{}
	text  bytes.Buffer // once done is closed
}

// listenTo collects the output of the first process of a container from now on.
func (d *Driver) listenTo(ctx context.Context, id string) (*words, error) {
	stream, err := d.engine.api.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stderr: true})
	if err != nil {
		return nil, d.engine.kind(ctx, "attach to a container", err)
	}
	w := &words{done: make(chan struct{})}
	w.close = func() {
		stream.Close()
		<-w.done
	}
	go func() {
		defer close(w.done)
		_, _ = stdcopy.StdCopy(&w.text, &w.text, stream.Reader)
	}()
	return w, nil
}

// said waits until the output is complete and returns it.
func (w *words) said() string {
	const most = 4 << 10
	w.close()
	text := strings.TrimSpace(w.text.String())
	return text[max(0, len(text)-most):]
}

// specification returns the guest's specification.
func specification(spec driver.Spec) guest.ContainerSpec {
	c := guest.ContainerSpec{
		Guest: box.Guest{
			OrphanSeconds: int64(spec.OrphanTimeout / time.Second), KeptBytes: bound.GuestOutput(spec.Limits.MemoryBytes),
			Workdir: spec.Workdir, User: spec.User,
		},
		Command: box.Command{OOMScoreAdj: 1000, MayLackFilter: spec.AllowUnisolated, NoWatches: !spec.AllowUnisolated},
		Limits:  box.UserLimits(),
	}
	if !spec.Deadline.IsZero() {
		c.Guest.DeadlineUnix = spec.Deadline.Unix()
	}
	if n := spec.Limits.OpenFiles; n > 0 {
		c.Command.Limits = append(c.Command.Limits, box.Limit{Resource: unix.RLIMIT_NOFILE, Value: uint64(n)})
	}
	if n := spec.Limits.FileSizeBytes; n > 0 {
		c.Limits = append(c.Limits, box.Limit{Resource: unix.RLIMIT_FSIZE, Value: uint64(n)})
	}
	return c
}
