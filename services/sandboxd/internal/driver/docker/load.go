package docker

import (
	"context"
	"errors"
	"fmt"
	"io"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/client"
)

// Loader puts images into an engine. Close frees what it holds.
type Loader struct{ engine *engine }

// NewLoader makes a loader for the configured engine. It does not talk to the engine yet.
func NewLoader(cfg Config) (*Loader, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e, err := newEngine(cfg.Host)
	if err != nil {
		return nil, err
	}
	return &Loader{e}, nil
}

// Close frees what the loader holds.
func (l *Loader) Close() error { return l.engine.close() }

// Label gives a label of an image; empty where the engine has no such image, or the image no such label.
func (l *Loader) Label(ctx context.Context, name, label string) (string, error) {
	got, err := l.engine.image(ctx, name)
	if cerrdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", l.engine.kind(ctx, "look for the image "+name, err)
	}
	if got.Config == nil {
		return "", nil
	}
	return got.Config.Labels[label], nil
}

// Load reads an archive of images into the engine.
func (l *Loader) Load(ctx context.Context, archive io.Reader) error {
	if _, err := l.engine.ready(ctx); err != nil {
		return err
	}
	answer, err := l.engine.api.ImageLoad(ctx, archive, client.ImageLoadWithQuiet(true))
	if err == nil && answer.JSON {
		err = readProgress(answer.Body)
	}
	if answer.Body != nil {
		err = errors.Join(err, answer.Body.Close())
	}
	return l.engine.kind(ctx, "load an image", err)
}

// FullTag completes the tag of an image, such as `sandbox` to `sandbox:latest`, or says what is wrong with it.
func FullTag(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("%q is not the name of an image, such as %s: %w", name, DefaultImage, err)
	}
	if _, ok := named.(reference.Digested); ok {
		return "", fmt.Errorf("%q: an image that is built has a tag, not a digest", name)
	}
	return reference.FamiliarString(reference.TagNameOnly(named)), nil
}
