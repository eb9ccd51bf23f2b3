package docker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/docker"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/drivertest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/image"
)

// testImage is the image that the tests' sandboxes are made from.
const testImage = "evalfleet/sandbox:test"

// What TestMain makes.
var (
	guestPath string
	host      string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "guestd")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		guestPath = filepath.Join(dir, "guestd")
		cmd := exec.Command("go", "build", "-trimpath", "-o", guestPath, "../../../cmd/guestd")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the guest: %v\n%s", err, out)
			return 1
		}
		host = docker.DefaultHost
		if err := loadImage(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
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

func newDriver(t *testing.T, dir string) driver.Driver {
	t.Helper()
	d, err := docker.New(docker.Config{Host: host, Image: testImage}, docker.Deps{Dir: dir, GuestPath: guestPath, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

func TestSuite(t *testing.T) {
	t.Parallel()
	caps, err := newDriver(t, t.TempDir()).Probe(t.Context())
	require.NoError(t, err)
	require.Empty(t, caps.Problem, "this machine's engine must be able to isolate, or the promises below are not tested")
	drivertest.Run(t, drivertest.Harness{New: newDriver, OwnSystem: true, NoDiskBound: true})
}
