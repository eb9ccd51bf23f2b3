package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/enginetest"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/programtest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/docker"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/drivertest"
	guestclient "github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/image"
)

// Images of the tests: of this machine's files, one that decides all that an image may, one with nothing but a program,
// and one that declares volumes.
const (
	testImage     = "evalfleet/sandbox:test"
	decidingImage = "evalfleet/sandbox:test-decides"
	emptyImage    = "evalfleet/sandbox:test-empty"
	volumesImage  = "evalfleet/sandbox:test-volumes"
)

// unique is a name of this process's own: other tests may use the same engine at the same time.
func unique(name string) string { return name + "-" + suffix }

var suffix = strings.ToLower(rand.Text()[:8])

// Set by TestMain.
var (
	guestPath string
	host      string
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run runs the tests between their set-up and its end.
func run(m *testing.M) (code int, err error) {
	if guestPath = os.Getenv("EVALFLEET_TEST_GUEST"); guestPath == "" {
		dir, err := programtest.Build("", "./services/sandboxd/cmd/guestd")
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		guestPath = filepath.Join(dir, "guestd")
	}
	engine, err := enginetest.Find(context.Background())
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, engine.Stop()) }()
	host = engine.Host
	ctx := context.Background()
	if err := loadImage(ctx); err != nil {
		return 1, err
	}
	program, err := os.ReadFile(guestPath)
	if err != nil {
		return 1, err
	}
	for tag, files := range map[string]map[string][]byte{
		decidingImage: {"Dockerfile": []byte("FROM " + testImage + "\n" + drivertest.Dockerfile)},
		volumesImage:  {"Dockerfile": []byte("FROM " + testImage + "\nVOLUME /more /data\n")},
		emptyImage:    {"Dockerfile": []byte("FROM scratch\nCOPY program /program\n"), "program": program},
	} {
		if err := buildImage(ctx, tag, files); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// loadImage puts the image of this machine's files into the engine.
func loadImage(ctx context.Context) error {
	img, err := image.Find(ctx, image.Config{SearchPath: os.Getenv("PATH")})
	if err != nil {
		return err
	}
	loader, err := docker.NewLoader(docker.Config{Host: host})
	if err != nil {
		return err
	}
	defer loader.Close()
	if have, err := loader.Label(ctx, testImage, image.LabelContent); err != nil || have == img.Content {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(img.Write(ctx, w, testImage, nil)) }()
	return loader.Load(ctx, r)
}

// buildImage builds an image as people do.
func buildImage(ctx context.Context, tag string, files map[string][]byte) error {
	api, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer api.Close()
	var context bytes.Buffer
	w := tar.NewWriter(&context)
	for name, content := range files {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}))
		_, writeErr := w.Write(content)
		err = errors.Join(err, writeErr)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	resp, err := api.ImageBuild(ctx, &context, build.ImageBuildOptions{Tags: []string{tag}, Remove: true})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if bytes.Contains(said, []byte(`"error"`)) {
		err = fmt.Errorf("build %s: %s", tag, said)
	}
	return err
}

func newDriver(t *testing.T, dir string) driver.Driver {
	t.Helper()
	d, err := docker.New(docker.Config{Host: host, Image: testImage}, docker.Deps{Dir: dir, GuestPath: guestPath, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// If the engine's storage has no quotas, the bytes that a box writes are measured, and a box over its bound is ended.
func TestABoxThatWritesTooMuchIsEnded(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	spec := driver.Spec{ID: unique("writes"), Owner: unique("disk"), Deadline: time.Now().Add(10 * time.Minute), Limits: driver.Limits{DiskBytes: 8 << 20}}
	t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), spec.ID)) })
	report, err := d.Create(t.Context(), spec)
	require.NoError(t, err)
	if slices.Contains(report.Isolation.Parts, "disk quota") {
		t.Skip("this engine bounds it")
	}
	assert.Contains(t, strings.Join(report.Isolation.Weaker, "; "), "disk: unbounded")
	c := guestclient.New(guestclient.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, spec.ID) },
		Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
	})
	t.Cleanup(c.Close)
	write := func(mib int) driver.Observed {
		require.NoError(t, c.WriteFile(t.Context(), "/tmp/"+strconv.Itoa(mib), 0o644, make([]byte, mib<<20)))
		boxes, err := d.List(t.Context(), spec.Owner)
		require.NoError(t, err)
		require.Len(t, boxes, 1)
		return boxes[0]
	}
	assert.True(t, write(4).Alive)
	over := write(6)
	assert.False(t, over.Alive)
	assert.Equal(t, "its disk is full: it wrote 10 MiB, and it may have 8 MiB", over.Ended)
}

// An empty file uses an entry of the disk, of which there is a fixed number.
func TestABoxThatMakesTooManyFilesIsEnded(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	spec := driver.Spec{ID: unique("many-files"), Owner: unique("many-files"), Deadline: time.Now().Add(10 * time.Minute), Limits: driver.Limits{DiskBytes: 8 << 20}}
	t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), spec.ID)) })
	report, err := d.Create(t.Context(), spec)
	require.NoError(t, err)
	if slices.Contains(report.Isolation.Parts, "disk quota") {
		t.Skip("this engine bounds it")
	}
	c := guestclient.New(guestclient.Config{
		Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, spec.ID) },
		Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
	})
	t.Cleanup(c.Close)
	boxes := func(path string) driver.Observed {
		require.NoError(t, c.Once(t.Context(), func(api guestv1.GuestServiceClient) error {
			_, err := api.Run(t.Context(), &guestv1.RunRequest{Spec: &sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "mkdir " + path + "; touch " + path + "/{1..1200}"}}})
			return err
		}))
		found, err := d.List(t.Context(), spec.Owner)
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	assert.True(t, boxes("/tmp/a").Alive)
	over := boxes("/tmp/a/b")
	assert.False(t, over.Alive)
	assert.Contains(t, over.Ended, "its disk is full")
}

func TestAServerThatCannotMeasureMakesNoBoxUnlessAllowed(t *testing.T) {
	t.Parallel()
	d := withConfig(t, docker.Config{Host: host, Image: testImage})
	d.SeeNothing()
	spec := driver.Spec{ID: unique("unmeasured"), Owner: unique("unmeasured"), Deadline: time.Now().Add(10 * time.Minute)}
	t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), spec.ID)) })
	report, err := d.Create(t.Context(), spec)
	if slices.Contains(report.Isolation.Parts, "disk quota") {
		t.Skip("this engine bounds it")
	}
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "%v", err)
	require.ErrorContains(t, err, "this server cannot measure it")
	left, err := d.List(t.Context(), spec.Owner)
	require.NoError(t, err)
	assert.Empty(t, left, "nothing is left behind")
	spec.AllowUnisolated = true
	report, err = d.Create(t.Context(), spec)
	require.NoError(t, err)
	assert.True(t, report.Isolation.Unisolated)
	assert.Contains(t, strings.Join(report.Isolation.Weaker, "; "), "removed files that are open are not measured")
}

func TestAnImageWithVolumesMakesNoBoxUnlessAllowed(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	spec := driver.Spec{ID: unique("volumes"), Owner: unique("volumes"), Image: volumesImage, Deadline: time.Now().Add(10 * time.Minute)}
	t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), spec.ID)) })
	for _, err := range []error{d.Check(t.Context(), spec), func() error { _, err := d.Create(t.Context(), spec); return err }()} {
		require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE), "%v", err)
		require.ErrorContains(t, err, "declares volumes (/data, /more)")
	}
	spec.AllowUnisolated = true
	report, err := d.Create(t.Context(), spec)
	require.NoError(t, err)
	assert.True(t, report.Isolation.Unisolated)
	assert.Contains(t, strings.Join(report.Isolation.Weaker, "; "), "volumes of the image (/data, /more)")
}

// A removed file uses space on the disk for as long as a process has it open.
func TestRemovedFilesThatAreOpenAreMeasured(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	for name, keep := range map[string]string{"open": "", "mapped": "m = mmap.mmap(f.fileno(), 1 << 20); os.closerange(3, 256)"} {
		spec := driver.Spec{ID: unique("removed-" + name), Owner: unique("removed-" + name), Deadline: time.Now().Add(10 * time.Minute), Limits: driver.Limits{DiskBytes: 8 << 20}}
		t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), spec.ID)) })
		report, err := d.Create(t.Context(), spec)
		require.NoError(t, err)
		if slices.Contains(report.Isolation.Parts, "disk quota") {
			t.Skip("this engine bounds it")
		}
		c := guestclient.New(guestclient.Config{
			Connect: func(ctx context.Context) (net.Conn, error) { return d.Connect(ctx, spec.ID) },
			Hello:   &guestv1.HelloRequest{Env: report.Env, Workdir: report.Workdir, User: report.User},
		})
		t.Cleanup(c.Close)
		require.NoError(t, c.Once(t.Context(), func(api guestv1.GuestServiceClient) error {
			resp, err := api.Run(t.Context(), &guestv1.RunRequest{Spec: &sandboxv1.ExecSpec{Argv: []string{"python3", "-c", `
import mmap, os, time
f = open('/tmp/x', 'w+b')
os.posix_fallocate(f.fileno(), 0, 10 << 20)
os.remove('/tmp/x')
` + keep + `
if os.fork() == 0:
    for n in range(3): os.close(n)
    time.sleep(1000)`}}})
			assert.Zero(t, resp.GetResult().GetExitCode(), "%s", resp.GetResult().GetStderr())
			return err
		}))
		found, err := d.List(t.Context(), spec.Owner)
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.False(t, found[0].Alive, name)
		assert.Equal(t, "its disk is full: it wrote 10 MiB, and it may have 8 MiB", found[0].Ended)
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	caps, err := newDriver(t, t.TempDir()).Probe(t.Context())
	require.NoError(t, err)
	require.NoError(t, caps.Problem, "this machine's engine must be able to isolate, or the promises below are not tested")
	drivertest.Run(t, drivertest.Harness{New: newDriver, OwnSystem: true, NoDiskBound: true, NoWatches: true, GuestInside: true, NoCheckMounts: true, Image: decidingImage})
}
