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

// Loader loads images into an engine. The caller closes it.
type Loader struct{ engine *engine }

// NewLoader returns a loader for the configured engine. It does not contact the engine yet.
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

// Close closes the connection to the engine.
func (l *Loader) Close() error { return l.engine.close() }

// Label returns a label of an image; empty if the engine lacks the image, or the image the label.
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

// Load loads an archive of images into the engine.
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

// FullTag completes the tag of an image, such as `sandbox` to `sandbox:latest`; an invalid tag is an error.
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
