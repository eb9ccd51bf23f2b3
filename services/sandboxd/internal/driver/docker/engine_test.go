package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/freespace"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/docker"
)

// withConfig returns a driver with that configuration, in a folder of its own.
func withConfig(t *testing.T, cfg docker.Config) *docker.Driver {
	t.Helper()
	d, err := docker.New(cfg, docker.Deps{Dir: t.TempDir(), GuestPath: guestPath})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// fakeEngine answers pings as an engine of that version of the API does, and nothing else.
func fakeEngine(t *testing.T, api string) (host string) {
	t.Helper()
	return serveEngine(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", api) })
}

// serveEngine serves the answers of an engine.
func serveEngine(t *testing.T, answer http.HandlerFunc) (host string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake-") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "d.sock"))
	require.NoError(t, err)
	server := &http.Server{Handler: answer}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, waittest.For(t, done, "the engine to end"), http.ErrServerClosed)
	})
	return "unix://" + filepath.Join(dir, "d.sock")
}

// TestABoundOfTheDiskIsNotDroppedForOneFailure has an engine fail once, then for good, with and without quotas.
func TestABoundOfTheDiskIsNotDroppedForOneFailure(t *testing.T) {
	t.Parallel()
	for name, has := range map[string]bool{"an engine with quotas": true, "an engine without quotas": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var fails, asked atomic.Int32
			d := withConfig(t, docker.Config{Host: serveEngine(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				bounded := bytes.Contains(body, []byte(`"StorageOpt":{"size"`))
				w.Header().Set("Content-Type", "application/json")
				asked.Add(1)
				switch {
				case !strings.HasSuffix(r.URL.Path, "/containers/create") || err != nil:
					w.WriteHeader(http.StatusNotImplemented)
				case bounded && (fails.Add(-1) >= 0 || !has):
					w.WriteHeader(http.StatusInternalServerError)
					fmt.Fprint(w, `{"message": "it cannot be made"}`)
				default:
					w.WriteHeader(http.StatusCreated)
					fmt.Fprint(w, `{"Id": "c"}`)
				}
			})})
			fails.Store(1)
			quota, err := d.CreateBounded(t.Context(), "a")
			require.NoError(t, err)
			assert.Equal(t, has, quota)
			fails.Store(1000)
			quota, err = d.CreateBounded(t.Context(), "b")
			if has {
				require.Error(t, err, "it had quotas")
				return
			}
			require.NoError(t, err)
			assert.False(t, quota)
			_, err = d.CreateBounded(t.Context(), "c")
			require.NoError(t, err)
			asked.Store(0)
			quota, err = d.CreateBounded(t.Context(), "d")
			require.NoError(t, err)
			assert.False(t, quota)
			assert.EqualValues(t, 1, asked.Load(), "it refused a bound for three boxes, and is not asked again")
		})
	}
}

// TestAnEngineWhoseDiskIsFullIsWaitedFor lets the disk of an engine become full while it creates a container, which the
// engine reports in text only.
func TestAnEngineWhoseDiskIsFullIsWaitedFor(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=64m"); err != nil {
		t.Skip("SKIP: mounting a small disk is not allowed here: ", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(root, unix.MNT_DETACH)) })
	host := serveEngine(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.41")
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/_ping"):
		case strings.HasSuffix(path, "/info"):
			fmt.Fprintf(w, `{"MemoryLimit": true, "PidsLimit": true, "DockerRootDir": %q}`, root)
		case strings.HasSuffix(path, "/images/some/json"):
			fmt.Fprintf(w, `{"Os": "linux", "Architecture": %q}`, runtime.GOARCH)
		case strings.HasSuffix(path, "/containers/create"):
			assert.NoError(t, os.WriteFile(filepath.Join(root, "layer"), make([]byte, 63<<20+1<<19), 0o600))
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"message": "something about a disk"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message": "there is none"}`)
		}
	})
	d, err := docker.New(docker.Config{Host: host}, docker.Deps{Dir: t.TempDir(), GuestPath: guestPath, Space: freespace.New(0)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	_, err = d.Create(t.Context(), driver.Spec{ID: "x", Owner: "me", Image: "some"})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)
	require.ErrorContains(t, err, root)
	assert.Positive(t, rpcerr.RetryAfter(err))
}

// The error of every call to an engine that cannot be used has its socket and the remedy. A search that finds nothing
// is not a fault if nothing was created.
func TestAnEngineThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	nobody := "unix://" + filepath.Join(t.TempDir(), "no.sock")
	old := fakeEngine(t, "1.40")
	for name, tt := range map[string]struct {
		host string
		says []string
	}{
		"missing":   {nobody, []string{nobody, "nobody listens there", "docker.io", "DOCKER_HOST"}},
		"too old":   {old, []string{old, `"1.40"`, "1.41", "20.10"}},
		"no scheme": {"/run/no.sock", []string{"write unix:///run/no.sock", "a path, not an address", "DOCKER_HOST"}},
		"elsewhere": {"tcp://192.0.2.1:2375", []string{"tcp://192.0.2.1:2375", "not on this machine", "unix://"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := withConfig(t, docker.Config{Host: tt.host})
			_, err := d.Create(t.Context(), driver.Spec{ID: "x", Owner: "me"})
			reason := errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNUSABLE
			if name == "missing" {
				reason = errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE // it may be there later
			}
			assert.Equal(t, reason, rpcerr.Reason(err), "%v", err)
			assert.Equal(t, err.Error(), d.Check(t.Context(), driver.Spec{}).Error(), "it is known without a box")
			caps, probeErr := d.Probe(t.Context())
			require.NoError(t, probeErr)
			for _, part := range tt.says {
				assert.ErrorContains(t, err, part)
				assert.ErrorContains(t, caps.Problem, part)
				assert.Equal(t, 1, strings.Count(err.Error(), part), "it is said once: %v", err)
			}
			if name == "too old" {
				return
			}
			boxes, err := d.List(t.Context(), "me")
			require.NoError(t, err)
			assert.Empty(t, boxes)
			require.NoError(t, d.Destroy(t.Context(), "x"))
		})
	}
}

func TestImagesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	const absent = "evalfleet-test.invalid/no/such:image"
	for name, tt := range map[string]struct {
		cfg    docker.Config
		image  string
		reason errorsv1.ErrorReason
		says   []string
	}{
		"absent":                  {docker.Config{}, absent, errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE, []string{absent, "docker pull", "pull: missing", "evalfleet sandbox image"}},
		"the default one":         {docker.Config{Image: absent}, "", errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE, []string{absent, "evalfleet sandbox image"}},
		"no registry, if missing": {docker.Config{Pull: docker.PullMissing}, absent, errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE, []string{absent, "cannot be fetched"}},
		"no registry, always":     {docker.Config{Pull: docker.PullAlways}, absent, errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE, []string{absent, "cannot be fetched"}},
		"no name":                 {docker.Config{}, "UPPER/case", errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, []string{"UPPER/case"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.cfg.Host = host
			d := withConfig(t, tt.cfg)
			_, err := d.Create(t.Context(), driver.Spec{ID: unique("no-image"), Owner: name, Image: tt.image})
			require.True(t, rpcerr.Is(err, tt.reason), "%v", err)
			for _, part := range tt.says {
				assert.ErrorContains(t, err, part)
			}
			if known := d.Check(t.Context(), driver.Spec{Image: tt.image}); tt.cfg.Pull == "" {
				require.EqualError(t, known, err.Error(), "it is known without a box")
			} else {
				require.NoError(t, known, "a registry may have it")
			}
			boxes, err := d.List(t.Context(), name)
			require.NoError(t, err)
			assert.Empty(t, boxes, "nothing is left behind")
		})
	}
}

// The default image of sandboxes may be missing if all sandboxes name an image.
func TestTheOwnImageIsNotTheDriver(t *testing.T) {
	t.Parallel()
	d := withConfig(t, docker.Config{Host: host, Image: "evalfleet-test.invalid/no/such:image"})
	caps, err := d.Probe(t.Context())
	require.NoError(t, err)
	assert.True(t, caps.Available())
	require.ErrorContains(t, caps.Problem, "no/such:image")
	require.NoError(t, d.Check(t.Context(), driver.Spec{Image: testImage}))
	require.ErrorContains(t, d.Check(t.Context(), driver.Spec{}), "no/such:image")
}

// An engine that accepts connections and never answers counts as absent, and is waited for no longer than one.
func TestAnEngineThatHangs(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hang-") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "d.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) }) // the kernel completes connections that no process accepts
	d := withConfig(t, docker.Config{Host: "unix://" + filepath.Join(dir, "d.sock")})
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
	defer cancel()
	caps, err := d.Probe(ctx)
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	require.ErrorContains(t, caps.Problem, "does not answer in 5s")
	assert.Positive(t, rpcerr.RetryAfter(caps.Problem))
}

// TestAGuestThatIsLateIsWaitedFor: on a machine that is too busy the guest of a container does not connect in time. If
// earlier guests did, the folder is visible to the engine, and the sandbox can be created later.
func TestAGuestThatIsLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := withConfig(t, docker.Config{Host: host, Image: testImage})
	late := func(id string) error {
		program := d.Guest() + ".late"
		require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
		require.NoError(t, os.Rename(program, d.Guest()))
		d.WaitForGuests(3 * time.Second)
		t.Cleanup(func() { assert.NoError(t, d.Destroy(context.Background(), id)) })
		_, err := d.Create(t.Context(), driver.Spec{ID: id, Owner: unique("late"), OrphanTimeout: time.Minute})
		return err
	}
	guest, err := os.ReadFile(d.Guest())
	require.NoError(t, err)
	err = late(unique("late-first"))
	require.ErrorContains(t, err, "the engine must see the folder")
	assert.Equal(t, codes.FailedPrecondition, rpcerr.Code(err), "%v", err)

	require.NoError(t, os.Remove(d.Guest()))
	require.NoError(t, os.WriteFile(d.Guest(), guest, 0o755))
	d.WaitForGuests(waittest.Bound)
	create(t, d, driver.Spec{ID: unique("in-time"), Owner: unique("late"), OrphanTimeout: time.Minute})
	err = late(unique("late-second"))
	require.ErrorContains(t, err, "too busy")
	assert.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
	assert.Positive(t, rpcerr.RetryAfter(err))
}

func TestWhatTheEngineRefusesIsTold(t *testing.T) {
	t.Parallel()
	d := withConfig(t, docker.Config{Host: host, Image: testImage, Runtime: "no-such-runtime"})
	_, err := d.Create(t.Context(), driver.Spec{ID: unique("bad-runtime"), Owner: unique("nobody-else")})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNUSABLE), "%v", err)
	require.ErrorContains(t, err, "no-such-runtime")
	boxes, err := d.List(t.Context(), unique("nobody-else"))
	require.NoError(t, err)
	assert.Empty(t, boxes)
}

func TestAnUnknownPolicyIsRefused(t *testing.T) {
	t.Parallel()
	_, err := docker.New(docker.Config{Pull: "sometimes"}, docker.Deps{Dir: t.TempDir(), GuestPath: guestPath})
	require.ErrorContains(t, err, "sometimes")
	require.ErrorContains(t, err, strings.Join([]string{docker.PullNever, docker.PullMissing, docker.PullAlways}, ", "))
}
