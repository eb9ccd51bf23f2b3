package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// pullTimeout bounds the pull of an image. A pull continues when the sandbox that needs it is given up.
const pullTimeout = 15 * time.Minute

// defaultPath is PATH if the image sets none, as engines set it.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// settings are what an image decides about its boxes.
type settings struct {
	name    string
	env     map[string]string
	workdir string
	user    string
	volumes []string // folders that the image declares, which the engine stores apart from the rest of a container
}

// images finds the images of boxes, and pulls them if that is configured. It is safe for concurrent use.
type images struct {
	cfg    Config
	engine *engine
	log    *slog.Logger
	ctx    context.Context // of all pulls
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	fetches map[string]*fetch // by name; a failed one is forgotten
}

// fetch is an image that this process is pulling or has pulled.
type fetch struct {
	done chan struct{}
	err  error
}

func newImages(cfg Config, e *engine, log *slog.Logger) *images {
	m := &images{cfg: cfg, engine: e, log: log, fetches: map[string]*fetch{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

func (m *images) close() {
	m.cancel()
	m.work.Wait()
}

// find returns the settings of the image of that name, or of the configured image if name is empty.
func (m *images) find(ctx context.Context, name string) (settings, error) {
	name = cmp.Or(name, m.cfg.Image)
	if m.cfg.Pull == PullAlways {
		if err := m.fetch(ctx, name); err != nil {
			return settings{}, err
		}
	}
	got, err := m.engine.image(ctx, name)
	if cerrdefs.IsNotFound(err) && m.cfg.Pull == PullMissing {
		if err := m.fetch(ctx, name); err != nil {
			return settings{}, err
		}
		got, err = m.engine.image(ctx, name)
	}
	if err != nil {
		return settings{}, m.kind(ctx, name, err)
	}
	return read(name, got)
}

// check rejects an image that find would not find, and returns its settings. Whether a registry has the image is known
// only when it is pulled.
func (m *images) check(ctx context.Context, name string) (settings, error) {
	name = cmp.Or(name, m.cfg.Image)
	got, err := m.engine.image(ctx, name)
	switch {
	case cerrdefs.IsNotFound(err) && m.cfg.Pull != PullNever:
		return settings{}, nil
	case err != nil:
		return settings{}, m.kind(ctx, name, err)
	case m.cfg.Pull == PullAlways:
		return settings{}, nil // another image may be pulled
	}
	return read(name, got)
}

// kind converts an error of looking up an image into one with a kind for the caller.
func (m *images) kind(ctx context.Context, name string, err error) error {
	switch {
	case cerrdefs.IsNotFound(err):
		return m.missing(name)
	case cerrdefs.IsInvalidArgument(err):
		return rpcerr.InvalidField("spec.image", "%q is not the name of an image", name)
	}
	return m.engine.kind(ctx, "look for the image "+name, err)
}

// read returns the settings of an image.
func read(name string, got image.InspectResponse) (settings, error) {
	if got.Os != "linux" || got.Architecture != runtime.GOARCH {
		return settings{}, unavailable(name, "the image %s is for %s/%s and this machine is linux/%s; fetch or build one for it", name, got.Os, got.Architecture, runtime.GOARCH)
	}
	s := settings{name: name, workdir: "/", user: "0", env: map[string]string{"PATH": defaultPath}}
	if got.Config == nil {
		return s, nil
	}
	for _, variable := range got.Config.Env {
		if key, value, ok := strings.Cut(variable, "="); ok {
			s.env[key] = value
		}
	}
	s.volumes = slices.Sorted(maps.Keys(got.Config.Volumes))
	s.workdir, s.user = cmp.Or(got.Config.WorkingDir, s.workdir), cmp.Or(got.Config.User, s.user)
	return s, nil
}

// missing returns the error of an image that the engine lacks, with the remedy.
func (m *images) missing(name string) error {
	if name == DefaultImage {
		return unavailable(name, "the Docker Engine has no image %s; build it from this machine's own files with `evalfleet sandbox image`, or name another one", name)
	}
	return unavailable(name, "the Docker Engine has no image %s; fetch it with `docker pull %s`, let the driver do so with sandboxd.docker.pull: missing, "+
		"or leave the image out for the one that `evalfleet sandbox image` builds", name, name)
}

func unavailable(name, format string, args ...any) error {
	return rpcerr.ImageUnavailable(name, "docker", format, args...)
}

// fetch fetches an image once in the life of this process, for all who wait for it.
func (m *images) fetch(ctx context.Context, name string) error {
	m.mu.Lock()
	f, ok := m.fetches[name]
	if !ok {
		f = &fetch{done: make(chan struct{})}
		m.fetches[name] = f
		m.work.Go(func() { //nolint:contextcheck // It goes on when the caller leaves.
			ctx, cancel := context.WithTimeout(m.ctx, pullTimeout)
			defer cancel()
			began := time.Now()
			if f.err = m.pull(ctx, name); f.err == nil {
				m.log.Info("an image was fetched", "image", name, "took", time.Since(began).Round(time.Millisecond))
			} else {
				m.mu.Lock()
				delete(m.fetches, name)
				m.mu.Unlock()
			}
			close(f.done)
		})
	}
	m.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the image %s: %w", name, ctx.Err())
	}
}

func (m *images) pull(ctx context.Context, name string) error {
	if _, err := m.engine.ready(ctx); err != nil {
		return err
	}
	progress, err := m.engine.api.ImagePull(ctx, name, image.PullOptions{})
	if err == nil {
		err = errors.Join(readProgress(progress), progress.Close())
	}
	if err != nil && ctx.Err() == nil {
		return unavailable(name, "the image %s cannot be fetched: %w", name, err)
	}
	return err
}

// readProgress reads the engine's progress messages about an image, until the end or an error.
func readProgress(r io.Reader) error {
	for d := json.NewDecoder(r); ; {
		var line struct{ Error string }
		switch err := d.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read what the engine says: %w", err)
		case line.Error != "":
			return errors.New(line.Error)
		}
	}
}

// image looks up an image. If the error is about the image, it is the engine's own.
func (e *engine) image(ctx context.Context, name string) (image.InspectResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := e.ready(ctx); err != nil {
		return image.InspectResponse{}, err
	}
	return e.api.ImageInspect(ctx, name)
}

// environment returns a copy, for one box.
func (s settings) environment() map[string]string { return maps.Clone(s.env) }
