package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// oldestAPI is the oldest supported version of the Engine API: that of Docker 20.10.
const oldestAPI = "1.41"

// Labels of containers. A later process finds them by these labels.
const (
	labelOwner    = "evalfleet.installation"
	labelBox      = "evalfleet.sandbox"
	labelDeadline = "evalfleet.deadline"
)

// Bounds of the engine's answer to a ping, to other queries, and to the removal of a container; how long its facts are
// cached; and the interval of retries while it is unreachable.
const (
	pingTimeout   = 5 * time.Second
	askTimeout    = 30 * time.Second
	removeTimeout = 45 * time.Second
	believed      = time.Minute
	backSoon      = 5 * time.Second
	// countTime bounds the counting of the entries of one container.
	countTime = 5 * time.Second
	// nearEnd is the longest interval between a shortage of memory and the end of a container that it causes.
	nearEnd = 5 * time.Second
)

// engine is the Docker Engine. It is safe for concurrent use.
type engine struct {
	host string
	api  *client.Client

	mu    sync.Mutex
	facts facts
	asked time.Time // zero: not yet, or the engine has been unreachable since

	countTime time.Duration
	// places are the folders of the layers of running containers, by container. They do not change while the containers
	// run.
	places map[string]place
}

// facts are the engine's capabilities.
type facts struct {
	memory, swap, pids, cpu bool
	apart                   bool // socket buffers are counted separately; runc sets no bound of them
	seccomp                 bool
	others                  []string // further security options that are on
	remapped                bool     // root in containers is another user here
	quota                   bool     // what is written may be bounded
	storage                 string
	root                    string // where the engine stores containers, as it sees it
	processors              int64  // as the engine counts them
}

// Reasons why no engine can be asked.
var (
	// errElsewhere is an engine on another machine: both must see the folder of the guest's socket.
	errElsewhere = errors.New("it is not on this machine")
	errNoScheme  = errors.New("that is a path, not an address")
	errNobody    = errors.New("nobody listens there")
	errSilent    = fmt.Errorf("it does not answer in %s", pingTimeout)
	errForbidden = errors.New("its socket is not open to this user")
)

func newEngine(host string) (*engine, error) {
	e := &engine{host: host, countTime: countTime, places: map[string]place{}}
	if !strings.HasPrefix(host, "unix://") {
		return e, nil // reported when it is used
	}
	var err error
	if e.api, err = client.NewClientWithOpts(client.WithHost(host)); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	return e, nil
}

func (e *engine) close() error {
	if e.api == nil {
		return nil
	}
	return e.api.Close()
}

// isAway reports whether an error means that the engine is unreachable.
func isAway(err error) bool {
	for _, away := range []error{errElsewhere, errNoScheme, errNobody, errSilent, errForbidden} {
		if errors.Is(err, away) {
			return true
		}
	}
	return client.IsErrConnectionFailed(err)
}

// kind converts an error of the engine into one with a kind for the caller. An error that has a kind keeps it. The
// client's text about an engine that does not answer is left out: it is advice of its own about the same fault.
func (e *engine) kind(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case rpcerr.Reason(err) != errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case isAway(err):
		e.mu.Lock()
		e.asked = time.Time{}
		e.mu.Unlock()
		why, next := errNobody, "start it (Debian: apt-get install docker.io)"
		switch {
		case errors.Is(err, os.ErrPermission):
			why, next = errForbidden, "run as root or as a member of its group (Debian: docker)"
		case errors.Is(err, errSilent):
			why, next = errSilent, "restart it"
		}
		return rpcerr.EngineUnavailable("docker", e.host, backSoon,
			"no Docker Engine answers at %s: %w; %s, say where it is in sandboxd.docker.host or DOCKER_HOST, or use another driver", e.host, why, next)
	}
	return rpcerr.EngineUnusable("docker", e.host, "the Docker Engine at %s cannot %s: %w", e.host, doing, err)
}

// ready checks that the engine answers and is recent enough, and returns its facts.
func (e *engine) ready(ctx context.Context) (facts, error) {
	switch {
	case e.api == nil && strings.HasPrefix(e.host, "/"):
		return facts{}, rpcerr.EngineUnusable("docker", e.host,
			"the Docker Engine at %s cannot be used: %w; write unix://%s in sandboxd.docker.host or DOCKER_HOST, or use another driver", e.host, errNoScheme, e.host)
	case e.api == nil:
		return facts{}, rpcerr.EngineUnusable("docker", e.host,
			"the Docker Engine at %s cannot be used: %w; name one of this machine in sandboxd.docker.host or DOCKER_HOST, as unix:// and the path of its socket, or use another driver", e.host, errElsewhere)
	}
	e.mu.Lock()
	known, fresh := e.facts, time.Since(e.asked) < believed
	e.mu.Unlock()
	if fresh {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ping, err := e.ping(ctx)
	if err != nil {
		return facts{}, e.kind(ctx, "answer", err)
	}
	if ping.APIVersion == "" || versions.LessThan(ping.APIVersion, oldestAPI) {
		return facts{}, rpcerr.EngineUnusable("docker", e.host,
			"the Docker Engine at %s speaks version %q of its API; version %s is needed, which Docker 20.10 and later speak", e.host, ping.APIVersion, oldestAPI)
	}
	e.api.NegotiateAPIVersionPing(ping)
	info, err := e.api.Info(ctx)
	if err != nil {
		return facts{}, e.kind(ctx, "tell what it can do", err)
	}
	f := facts{memory: info.MemoryLimit, swap: info.SwapLimit, pids: info.PidsLimit, apart: info.CgroupVersion == "1", cpu: info.CPUCfsQuota, storage: info.Driver, root: info.DockerRootDir, processors: int64(info.NCPU)}
	for _, option := range info.SecurityOptions {
		name, rest, _ := strings.Cut(strings.TrimPrefix(option, "name="), ",")
		switch name {
		case "seccomp":
			f.seccomp = !strings.Contains(rest, "unconfined")
		case "userns", "rootless":
			f.remapped = true
			f.others = append(f.others, "user namespace")
		case "apparmor", "selinux":
			f.others = append(f.others, name)
		}
	}
	f.quota = slices.Contains([]string{"btrfs", "zfs", "devicemapper", "windowsfilter"}, info.Driver)
	for _, status := range info.DriverStatus {
		f.quota = f.quota || info.Driver == "overlay2" && status == [2]string{"Backing Filesystem", "xfs"}
	}
	e.mu.Lock()
	e.facts, e.asked = f, time.Now()
	e.mu.Unlock()
	return f, nil
}

// left returns the error of an engine that has become unreachable; nil if it is reachable. The engine's last failure
// may look like another fault.
func (e *engine) left(ctx context.Context) error {
	e.mu.Lock()
	e.asked = time.Time{}
	e.mu.Unlock()
	if _, err := e.ready(ctx); rpcerr.RetryAfter(err) > 0 {
		return err
	}
	return nil
}

// ping checks that the engine responds. An engine that hangs counts as unreachable.
func (e *engine) ping(ctx context.Context) (types.Ping, error) {
	within, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	ping, err := e.api.Ping(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = errSilent
	}
	return ping, err
}

// containerName returns the name of a box's container.
func containerName(id string) string { return "evalfleet-" + id }

// found is a container as the engine describes it.
type found struct {
	id      string
	running bool
	pid     int // of its first process, in the engine's process namespace
	created time.Time
}

// is reports whether a container runs and is the one of a record.
func (f *found) is(rec *record) bool {
	return f != nil && f.running && rec.Ready && f.id == rec.Container
}

// inspect finds the container of a box; nil if there is none. A container of that name that is not ours is an error.
func (e *engine) inspect(ctx context.Context, id string) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := e.ready(ctx); err != nil {
		return nil, err
	}
	c, err := e.api.ContainerInspect(ctx, containerName(id))
	if cerrdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, e.kind(ctx, "look for a container", err)
	}
	if c.Config == nil || c.Config.Labels[labelBox] != id {
		return nil, rpcerr.EngineUnusable("docker", e.host, "the container %s is none of evalfleet's; remove or rename it", containerName(id))
	}
	f := &found{id: c.ID}
	if c.State != nil {
		f.running, f.pid = c.State.Running, c.State.Pid
	}
	return f, nil
}

// list finds an owner's containers, by box.
func (e *engine) list(ctx context.Context, owner string) (map[string]*found, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := e.ready(ctx); err != nil {
		return nil, err
	}
	all, err := e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelOwner+"="+owner))})
	if err != nil {
		return nil, e.kind(ctx, "list containers", err)
	}
	out := map[string]*found{}
	for _, c := range all {
		out[c.Labels[labelBox]] = &found{id: c.ID, running: c.State == container.StateRunning, created: time.Unix(c.Created, 0)}
	}
	return out, nil
}

// ranOut reports whether the kernel killed a container for lack of memory, as far as the engine's recent events show:
// containers are removed when they end, together with all other data about them.
func (e *engine) ranOut(ctx context.Context, id string) bool {
	if id == "" || e.api == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	const exitKilled = "137"
	now := time.Now()
	said, ended := e.api.Events(ctx, events.ListOptions{
		Since: "1", Until: fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond()), // past events only
		Filters: filters.NewArgs(filters.Arg("container", id), filters.Arg("event", string(events.ActionOOM)), filters.Arg("event", string(events.ActionDie))),
	})
	var short, killed int64 // when
	for {
		select {
		case m := <-said:
			switch {
			case m.Action == events.ActionOOM:
				short = m.TimeNano
			case m.Actor.Attributes["exitCode"] == exitKilled:
				killed = m.TimeNano
			}
		case err := <-ended:
			return errors.Is(err, io.EOF) && short > 0 && killed > 0 && time.Duration(killed-short).Abs() < nearEnd
		}
	}
}

// writing is the data that a container has written beyond its image.
type writing struct {
	bytes      int64
	unmeasured bool // it has more files open than are looked at in the time for that, or folders that are nested too deep
}

// written returns what an owner's containers have written, by box. The engine computes the bytes by walking the
// containers' folders; the data that it does not find there is given by container. Entries are counted here, up to the
// bound of a box, if this program can see the engine's storage, which a container's record notes from its start. late
// are the boxes whose entries could not be counted this time, or not completely in the time that each has.
func (e *engine) written(ctx context.Context, owner string, unlinked map[string]*removed, bounds map[string]int64) (out map[string]writing, late []string, err error) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := e.api.ContainerList(asking, container.ListOptions{Size: true, Filters: filters.NewArgs(filters.Arg("label", labelOwner+"="+owner))})
	if err != nil {
		return nil, nil, e.kind(asking, "measure containers", err)
	}
	out = map[string]writing{}
	for _, c := range all {
		w := writing{bytes: c.SizeRw}
		if r := unlinked[c.ID]; r != nil {
			w = writing{c.SizeRw + r.bytes(), r.full()}
		}
		box := c.Labels[labelBox]
		if left := bounds[box] - w.bytes; left > 0 {
			n, err := e.count(ctx, c.ID, left/entryBytes)
			w.bytes += n * entryBytes
			w.unmeasured = w.unmeasured || errors.Is(err, errTooDeep)
			if errors.Is(err, context.DeadlineExceeded) {
				late = append(late, box)
			}
		}
		out[box] = w
	}
	e.forget(all)
	return out, late, nil
}

// count counts the entries of a container's layer, until there are more than most.
func (e *engine) count(ctx context.Context, id string, most int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, e.countTime)
	defer cancel()
	layer, err := e.layer(ctx, id)
	if err != nil {
		return 0, errors.Join(ctx.Err(), err)
	}
	return entries(ctx, layer, most)
}

// forget drops the places of containers that no longer run.
func (e *engine) forget(running []container.Summary) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.places, func(id string, _ place) bool {
		return !slices.ContainsFunc(running, func(c container.Summary) bool { return c.ID == id })
	})
}

// remove ends and removes the container of a box, and waits until it no longer exists.
func (e *engine) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	for backoff := (retry.Backoff{First: 10 * time.Millisecond, Max: time.Second}); ; {
		c, err := e.inspect(ctx, id)
		if err != nil || c == nil {
			return err
		}
		err = e.api.ContainerRemove(ctx, c.id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || cerrdefs.IsNotFound(err) {
			return nil
		}
		if !cerrdefs.IsConflict(err) { // it is being removed already, by the engine itself
			return e.kind(ctx, "remove a container", err)
		}
		if backoff.Wait(ctx) != nil {
			return e.kind(ctx, "remove a container", err)
		}
	}
}
