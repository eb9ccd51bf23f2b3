package sandboxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/docker"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/image"
)

// ImageRequest describes the image that BuildImage builds.
type ImageRequest struct {
	// Tag is the name of the image. Default: the configured image of sandboxes that name none.
	Tag string
	// Output is a file to write the image to, in place of loading it into the engine.
	Output string
	// Progress is called with the number of bytes read so far and the total; nil for no progress.
	Progress func(read, total int64)
}

// BuiltImage describes the image that BuildImage built.
type BuiltImage struct {
	// Tag is the image's full name.
	Tag string `json:"tag"`
	// Content is a hash of the image's content.
	Content string `json:"content"`
	// Files and Bytes are the number of the files and their total size.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Output is the file that it was written to, if it was.
	Output string `json:"output,omitempty"`
	// Current reports that the engine had the image already, so that nothing was done.
	Current bool `json:"current"`
}

// BuildImage builds an image for the docker driver from this machine's own files, and loads it into the engine unless
// the engine has it.
func BuildImage(ctx context.Context, cfg Config, req ImageRequest) (built BuiltImage, err error) {
	config.SetDefaults(&cfg)
	if built.Tag, err = docker.FullTag(cmp.Or(req.Tag, cfg.Docker.Image)); err != nil {
		return built, err
	}
	var engine *docker.Loader
	have := ""
	if req.Output == "" {
		if engine, err = docker.NewLoader(cfg.Docker); err != nil {
			return built, err
		}
		defer func() { err = errors.Join(err, engine.Close()) }()
		if have, err = engine.Label(ctx, built.Tag, image.LabelContent); err != nil {
			return built, err
		}
	}
	img, err := image.Find(ctx, image.Config{Python: cfg.Python, SearchPath: cfg.SearchPath})
	if err != nil {
		return built, fmt.Errorf("find what goes into the image: %w", err)
	}
	built.Content, built.Files, built.Bytes, built.Output = img.Content, img.Files, img.Bytes, req.Output
	progress := func(read int64) {
		if req.Progress != nil {
			req.Progress(read, img.Bytes)
		}
	}
	switch {
	case req.Output != "":
		return built, writeFile(req.Output, func(w io.Writer) error { return img.Write(ctx, w, built.Tag, progress) })
	case have == img.Content:
		built.Current = true
		return built, nil
	}
	archive, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := img.Write(ctx, w, built.Tag, progress)
		w.CloseWithError(err)
		written <- err
	}()
	err = engine.Load(ctx, archive)
	archive.CloseWithError(errors.New("the engine reads no more"))
	return built, errors.Join(err, ignorePipe(<-written, err))
}

// ignorePipe discards the error of a pipe's writer that failed because its reader did.
func ignorePipe(writer, reader error) error {
	if reader != nil {
		return nil
	}
	return writer
}

// writeFile writes a file atomically and durably: it exists completely or not at all, even after a power failure.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
