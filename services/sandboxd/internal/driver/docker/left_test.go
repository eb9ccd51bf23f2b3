package docker_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/docker"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/drivertest"
	guestclient "github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

// engineOf talks to the engine beside the driver.
func engineOf(t *testing.T) *client.Client {
	t.Helper()
	api, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, api.Close()) })
	return api
}

// create creates a box that is destroyed with the test, and returns a function that runs a command in it.
func create(t *testing.T, d *docker.Driver, spec driver.Spec) (driver.Report, func(argv ...string) *sandboxv1.ExecResult) {
	t.Helper()
	t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), spec.ID)) })
	report, err := d.Create(t.Context(), spec)
	require.NoError(t, err)
	c := guestclient.New(guestclient.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, spec.ID) },
		Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
	})
	t.Cleanup(c.Close)
	return report, func(argv ...string) (r *sandboxv1.ExecResult) {
		t.Helper()
		require.NoError(t, c.Once(t.Context(), func(api guestv1.GuestServiceClient) error {
			resp, err := api.Run(t.Context(), &guestv1.RunRequest{Spec: &sandboxv1.ExecSpec{Argv: argv}, MaxAnswerBytes: 1 << 20})
			r = resp.GetResult()
			return err
		}))
		return r
	}
}

// The remains of a crash at any point are found by label or folder and can be removed, and the same box can be created
// again over them.
func TestWhatACrashLeavesIsFound(t *testing.T) {
	t.Parallel()
	api := engineOf(t)
	made := func(t *testing.T, id, owner string) {
		_, err := api.ContainerCreate(t.Context(), &container.Config{
			Image: testImage, Cmd: []string{"sleep", "1000"}, Labels: map[string]string{"evalfleet.installation": owner, "evalfleet.sandbox": id},
		}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "evalfleet-"+id)
		require.NoError(t, err)
	}
	folder := func(t *testing.T, dir, id string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, id, "ctl"), 0o700))
	}
	for name, leave := range map[string]func(t *testing.T, dir, id, owner string){
		"folder":               func(t *testing.T, dir, id, _ string) { folder(t, dir, id) },
		"folder-and-container": func(t *testing.T, dir, id, owner string) { folder(t, dir, id); made(t, id, owner) },
		"container":            func(t *testing.T, _, id, owner string) { made(t, id, owner) },
		"running-container": func(t *testing.T, dir, id, owner string) {
			folder(t, dir, id)
			made(t, id, owner)
			require.NoError(t, api.ContainerStart(t.Context(), "evalfleet-"+id, container.StartOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d, err := docker.New(docker.Config{Host: host, Image: testImage}, docker.Deps{Dir: dir, GuestPath: guestPath})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, d.Close()) })
			id, owner := unique("left-"+name), unique("owner-of-"+name)
			t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), id)) })
			leave(t, dir, id, owner)
			boxes, err := d.List(t.Context(), owner)
			require.NoError(t, err)
			require.Len(t, boxes, 1)
			assert.Equal(t, id, boxes[0].ID)
			assert.False(t, boxes[0].Alive, "it is no box that can be used")
			require.NoError(t, d.Destroy(t.Context(), id))
			boxes, err = d.List(t.Context(), owner)
			require.NoError(t, err)
			assert.Empty(t, boxes)
			_, err = api.ContainerInspect(t.Context(), "evalfleet-"+id)
			require.Error(t, err, "it is gone")

			leave(t, dir, id, owner)
			_, run := create(t, d, driver.Spec{ID: id, Owner: owner, OrphanTimeout: time.Minute, Limits: driver.Limits{MemoryBytes: 128 << 20, PIDs: 64}})
			assert.Equal(t, "here\n", string(run("echo", "here").GetStdout()))
		})
	}
}

// A server that is killed during its measurement leaves a container that was never started, which the engine does not
// remove by itself. Any other server of the engine removes it, whatever its folder.
func TestTheProbeOfAKilledServerIsRemoved(t *testing.T) {
	t.Parallel()
	api, probe := engineOf(t), driver.Probe()
	_, err := api.ContainerCreate(t.Context(), &container.Config{
		Image: testImage, Cmd: []string{"true"}, Labels: map[string]string{"evalfleet.installation": probe.Owner, "evalfleet.sandbox": probe.ID},
	}, &container.HostConfig{NetworkMode: "none", AutoRemove: true}, nil, nil, "evalfleet-"+probe.ID)
	require.NoError(t, err)
	d := withConfig(t, docker.Config{Host: host, Image: testImage})
	require.NoError(t, driver.Sweep(t.Context(), drivertest.Aged{Driver: d, ID: probe.ID, By: time.Hour}))
	_, err = api.ContainerInspect(t.Context(), "evalfleet-"+probe.ID)
	require.Error(t, err, "it is gone")
}

// A container of that name which is somebody else's is left alone, and named.
func TestAForeignContainerIsLeftAlone(t *testing.T) {
	t.Parallel()
	api, id := engineOf(t), unique("foreign")
	_, err := api.ContainerCreate(t.Context(), &container.Config{Image: testImage, Cmd: []string{"true"}}, nil, nil, nil, "evalfleet-"+id)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api.ContainerRemove(context.Background(), "evalfleet-"+id, container.RemoveOptions{Force: true}))
	})
	d := withConfig(t, docker.Config{Host: host, Image: testImage})
	_, err = d.Create(t.Context(), driver.Spec{ID: id, Owner: unique("me")})
	require.ErrorContains(t, err, "evalfleet-"+id)
	require.Error(t, d.Destroy(t.Context(), id))
	_, err = api.ContainerInspect(t.Context(), "evalfleet-"+id)
	require.NoError(t, err)
}

// An image needs nothing: no shell, no init, no user, no library.
func TestAnImageWithOneProgram(t *testing.T) {
	t.Parallel()
	d := withConfig(t, docker.Config{Host: host})
	report, run := create(t, d, driver.Spec{ID: unique("one-program"), Owner: unique("me"), Image: emptyImage, OrphanTimeout: time.Minute})
	assert.Equal(t, "/", report.Workdir)
	r := run("/program", "version")
	assert.Zero(t, r.GetExitCode(), "%s", r.GetStderr())
	assert.NotEmpty(t, r.GetStdout())
}

// A bound of more processors than the machine has is not a bound, and the engine refuses it.
func TestMoreProcessorsThanThereAre(t *testing.T) {
	t.Parallel()
	d := withConfig(t, docker.Config{Host: host, Image: testImage})
	create(t, d, driver.Spec{ID: unique("many-processors"), Owner: unique("me"), OrphanTimeout: time.Minute, Limits: driver.Limits{CPUMillis: 1_000_000}})
	c, err := engineOf(t).ContainerInspect(t.Context(), "evalfleet-"+unique("many-processors"))
	require.NoError(t, err)
	assert.Equal(t, int64(runtime.NumCPU())*1e9, c.HostConfig.NanoCPUs)
}

// The driver defines the restrictions of a container, whatever the image requests.
func TestHowAContainerIsHeld(t *testing.T) {
	t.Parallel()
	d := withConfig(t, docker.Config{Host: host})
	limits := driver.Limits{MemoryBytes: 128 << 20, PIDs: 100, CPUMillis: 500}
	deadline := time.Now().Add(time.Hour).Truncate(time.Second)
	report, _ := create(t, d, driver.Spec{
		ID: unique("held"), Owner: unique("holder"), Image: decidingImage, OrphanTimeout: time.Minute, Deadline: deadline, Limits: limits, Labels: map[string]string{"for": "people"},
	})
	for _, part := range []string{"network namespace", "no capabilities", "no_new_privs", "cgroup memory", "cgroup pids", "cgroup cpu", "seccomp"} {
		assert.Contains(t, report.Isolation.Parts, part)
	}
	c, err := engineOf(t).ContainerInspect(t.Context(), "evalfleet-"+unique("held"))
	require.NoError(t, err)
	h := c.HostConfig
	assert.EqualValues(t, "none", h.NetworkMode)
	assert.Equal(t, []string{"ALL"}, []string(h.CapDrop))
	assert.Contains(t, h.SecurityOpt, "no-new-privileges")
	assert.False(t, h.Privileged)
	assert.Equal(t, limits.MemoryBytes, h.Memory)
	assert.Equal(t, limits.CPUMillis*1e6, h.NanoCPUs)
	assert.GreaterOrEqual(t, *h.PidsLimit, limits.PIDs)
	assert.LessOrEqual(t, *h.PidsLimit, 2*limits.PIDs)
	assert.Equal(t, "none", h.LogConfig.Type)
	for _, m := range c.Mounts {
		assert.True(t, !m.RW || m.Type == "volume", m.Destination)
	}
	assert.Equal(t, unique("holder"), c.Config.Labels["evalfleet.installation"])
	assert.Equal(t, unique("held"), c.Config.Labels["evalfleet.sandbox"])
	assert.Equal(t, deadline.UTC().Format(time.RFC3339), c.Config.Labels["evalfleet.deadline"])
	assert.Equal(t, "people", c.Config.Labels["for"])
}

// A container is removed when it ends. The engine's last events show that it ran out of memory, unless the kernel's
// event came to the engine after the removal: then the engine has dropped it, and the test tries another container.
func TestAContainerThatIsLostByMemorySaysSo(t *testing.T) {
	t.Parallel()
	owner := unique("owner-of-oom")
	d := withConfig(t, docker.Config{Host: host, Image: testImage})
	for try := 1; ; try++ {
		id := unique("oom") + "-" + strconv.Itoa(try)
		lost := loseByMemory(t, d, id, owner)
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST, lost.Reason)
		if lost.Metadata["cause"] != driver.OutOfMemory {
			t.Logf("try %d: the engine does not say why: %v", try, lost)
			require.Less(t, try, 5)
			continue
		}
		seen, err := d.List(t.Context(), owner)
		require.NoError(t, err)
		i := slices.IndexFunc(seen, func(b driver.Observed) bool { return b.ID == id })
		require.NotEqual(t, -1, i)
		assert.False(t, seen[i].Alive)
		assert.Equal(t, driver.OutOfMemory, seen[i].Ended)
		return
	}
}

// loseByMemory creates a box, lets it run out of memory, and returns the error of a connection to it.
func loseByMemory(t *testing.T, d *docker.Driver, id, owner string) *rpcerr.Error {
	t.Helper()
	api, ctx := engineOf(t), waittest.Context(t)
	report, err := d.Create(ctx, driver.Spec{
		ID: id, Owner: owner, OrphanTimeout: time.Minute, Limits: driver.Limits{MemoryBytes: 256 << 20, PIDs: 64},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), id)) })
	c := guestclient.New(guestclient.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, id) },
		Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
	})
	t.Cleanup(c.Close)
	// The guest stores the output of a command. Where it can start none for lack of memory, the request alone takes
	// some.
	fill := func() error {
		return c.Once(ctx, func(api guestv1.GuestServiceClient) error {
			_, err := api.Run(ctx, &guestv1.RunRequest{Key: unique("k"), Spec: &sandboxv1.ExecSpec{
				Argv: []string{"head", "-c", "10000000", "/dev/zero"}, Stdin: make([]byte, 3<<20),
			}})
			return err
		})
	}
	require.NoError(t, fill())
	for bytes := int64(6 << 20); ; bytes += 4 << 20 { // Less than it has is refused by cgroups of version 1.
		require.Less(t, bytes, int64(1<<30))
		_, err := api.ContainerUpdate(ctx, "evalfleet-"+id, container.UpdateConfig{Resources: container.Resources{Memory: bytes, MemorySwap: bytes}})
		if err == nil {
			break
		}
	}
	var lost *rpcerr.Error
	for lost == nil { // It may also refuse a command before it is lost.
		require.NoError(t, ctx.Err(), "it lives on; the last command: %v", err)
		var fills errgroup.Group
		for range 8 {
			fills.Go(fill)
		}
		err = fills.Wait()
		lost = lostAt(ctx, t, d, id)
	}
	// The reason may come later.
	for late := time.After(10 * time.Second); lost.Metadata["cause"] != driver.OutOfMemory; {
		select {
		case <-late:
			return lost
		case <-time.After(50 * time.Millisecond):
			lost = lostAt(ctx, t, d, id)
			require.NotNil(t, lost, "it lives again")
		}
	}
	return lost
}

// lostAt returns the error of a connection to a box, or nil if it lives.
func lostAt(ctx context.Context, t *testing.T, d *docker.Driver, id string) *rpcerr.Error {
	t.Helper()
	conn, err := d.Connect(ctx, id)
	if err == nil {
		require.NoError(t, conn.Close())
		return nil
	}
	lost, ok := rpcerr.As(err)
	require.True(t, ok, "%v", err)
	return lost
}
