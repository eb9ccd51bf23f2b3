package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

type settings struct {
	Listen string `yaml:"listen"`
	Models struct {
		Size int `yaml:"size"`
	} `yaml:"models"`
}

// followed is a reloader whose file, signals and ticks a test makes.
type followed struct {
	file    string
	asked   chan os.Signal
	ticks   chan time.Time
	applied []settings
	refuses error
	log     bytes.Buffer
}

// follow runs a reloader; the function that it returns ends it.
func follow(t *testing.T) (*followed, func()) {
	t.Helper()
	return followAfter(t, func(*followed) {})
}

// followAfter is follow after a change of the file since it was read.
func followAfter(t *testing.T, change func(*followed)) (*followed, func()) {
	t.Helper()
	f := &followed{file: filepath.Join(t.TempDir(), "c.yaml"), asked: make(chan os.Signal), ticks: make(chan time.Time)}
	f.write(t, "listen: a\nmodels: {size: 1}\n")
	load := func(ctx context.Context) (any, error) {
		next := &settings{}
		return next, config.Load(ctx, next, f.file, func(string) (string, bool) { return "", false })
	}
	current, err := load(t.Context())
	require.NoError(t, err)
	r := &daemon.Reloader{
		File: f.file, Current: current, Load: load, Takes: []string{"models"}, Asked: f.asked, Logger: slog.New(slog.NewTextHandler(&f.log, nil)),
		Apply: func(_ context.Context, next any) error {
			if f.refuses == nil {
				f.applied = append(f.applied, *next.(*settings))
			}
			return f.refuses
		},
	}
	change(f)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Follow(ctx, f.ticks) })
	f.ticks <- time.Time{} // The first look is over.
	return f, func() { cancel(); running.Wait() }
}

func (f *followed) write(t *testing.T, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(f.file, []byte(content), 0o600))
}

// tick makes the reloader look, and waits until it has looked twice. It may look once more while the test continues.
func (f *followed) tick() {
	for range 3 {
		f.ticks <- time.Time{}
	}
}

func TestAChangedFileIsReloaded(t *testing.T) {
	t.Parallel()
	f, stop := follow(t)
	f.tick()
	f.write(t, "listen: b\nmodels: {size: 2}\n")
	f.tick()
	f.write(t, "# the same\nlisten: b\nmodels: {size: 2}\n")
	f.tick()
	stop()
	require.Len(t, f.applied, 1, "what did not change is not applied")
	assert.Equal(t, 2, f.applied[0].Models.Size)
	assert.Contains(t, f.log.String(), "need a restart")
	assert.Contains(t, f.log.String(), "keys=listen")
}

// Programs write a file in steps: what a look finds between them is not applied.
func TestAFileThatIsBeingWrittenIsNotReloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, stop := follow(t)
		for _, content := range []string{"", "listen: a\n", "listen: a\nmodels: {size: 2}\n"} {
			synctest.Wait() // The last look is over.
			f.write(t, content)
			f.ticks <- time.Time{}
		}
		synctest.Wait()
		assert.Empty(t, f.applied)
		f.ticks <- time.Time{}
		synctest.Wait()
		stop()
		require.Len(t, f.applied, 1)
		assert.Equal(t, 2, f.applied[0].Models.Size)
	})
}

// The start takes a while after the file was read: a change meanwhile is one too.
func TestAFileThatChangesDuringTheStartIsReloaded(t *testing.T) {
	t.Parallel()
	f, stop := followAfter(t, func(f *followed) { f.write(t, "listen: a\nmodels: {size: 2}\n") })
	f.tick()
	stop()
	require.Len(t, f.applied, 1)
	assert.Equal(t, 2, f.applied[0].Models.Size)
	assert.Empty(t, f.log.String())
	f, stop = follow(t)
	f.tick()
	stop()
	assert.Empty(t, f.applied)
	assert.Empty(t, f.log.String(), "nothing has changed since the start, which nobody asked")
}

// A signal that comes before the process serves neither ends it nor is lost.
func TestASignalDuringTheStartWaits(t *testing.T) {
	asked, stop := daemon.Hangups("c.yaml")
	defer stop()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	waittest.For(t, asked, "the signal")
	none, release := daemon.Hangups("")
	assert.Nil(t, none, "without a file the signal ends the process")
	release()
}

// A volume of Kubernetes is a symbolic link to a folder, which is replaced as a whole.
func TestAFileBehindALinkIsReloaded(t *testing.T) {
	t.Parallel()
	f, stop := follow(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.yaml"), []byte("listen: a\nmodels: {size: 7}\n"), 0o600))
	require.NoError(t, os.Remove(f.file))
	f.tick()
	require.NoError(t, os.Symlink(filepath.Join(dir, "c.yaml"), f.file))
	f.tick()
	stop()
	require.Len(t, f.applied, 1)
	assert.Equal(t, 7, f.applied[0].Models.Size)
	assert.NotContains(t, f.log.String(), "restart")
}

func TestABrokenFileKeepsTheOldConfiguration(t *testing.T) {
	t.Parallel()
	f, stop := follow(t)
	f.write(t, "listen: a\nmodels:\n  sise: 2\n")
	f.tick()
	assert.Empty(t, f.applied)
	f.write(t, "listen: a\nmodels: {size: 3}\n")
	f.tick()
	stop()
	assert.Contains(t, f.log.String(), "line 3: unknown key models.sise")
	assert.Contains(t, f.log.String(), f.file)
	require.Len(t, f.applied, 1)
	assert.Equal(t, 3, f.applied[0].Models.Size)
}

func TestASignalReloadsAlsoWhatWasRefusedBefore(t *testing.T) {
	t.Parallel()
	f, stop := follow(t)
	f.refuses = errors.New("not this one")
	f.write(t, "listen: a\nmodels: {size: 2}\n")
	f.tick()
	f.refuses = nil
	f.asked <- syscall.SIGHUP
	f.tick()
	stop()
	assert.Contains(t, f.log.String(), "not this one")
	require.Len(t, f.applied, 1)
}
