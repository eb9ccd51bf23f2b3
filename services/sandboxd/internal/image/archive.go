package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// Names in an archive.
const (
	layerName    = "layer.tar"
	manifestName = "manifest.json"
)

// configFile is an image's configuration, as the image specification of OCI and Docker has it.
type configFile struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Created      time.Time `json:"created"`
	Config       struct {
		User       string
		Env        []string
		Cmd        []string
		WorkingDir string
		Labels     map[string]string
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	} `json:"history"`
}

// Write writes the image under a tag as an archive that `docker load`, and others like it, read. Progress is called
// with the bytes of files that were read so far, of Bytes; it may be nil.
func (img *Image) Write(ctx context.Context, w io.Writer, tag string, progress func(int64)) (err error) {
	layer, err := os.CreateTemp("", "evalfleet-layer-*") // its size stands before it in the archive
	if err != nil {
		return fmt.Errorf("make a file for the layer: %w", err)
	}
	defer func() { err = errors.Join(err, layer.Close(), os.Remove(layer.Name())) }()
	sum := sha256.New()
	if err := img.layer(ctx, io.MultiWriter(layer, sum), progress); err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	config, err := img.config("sha256:" + hex.EncodeToString(sum.Sum(nil)))
	if err != nil {
		return err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{tag}, "Layers": []string{layerName}}})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, part := range []struct {
		name string
		size int64
		body io.Reader
	}{
		{layerName, size, layer},
		{configName, int64(len(config)), bytes.NewReader(config)},
		{manifestName, int64(len(manifest)), bytes.NewReader(manifest)},
	} {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: part.name, Size: part.size, Mode: 0o644}); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
		if _, err := io.Copy(out, part.body); err != nil {
			return fmt.Errorf("write the archive: %w", err)
		}
	}
	return out.Close()
}

// config is the configuration of the image around its layer.
func (img *Image) config(layer string) ([]byte, error) {
	created := img.newest()
	c := configFile{Architecture: runtime.GOARCH, OS: "linux", Created: created}
	c.Config.User, c.Config.WorkingDir, c.Config.Cmd = userName, workdir, []string{"bash"}
	c.Config.Env = []string{"PATH=" + img.path}
	c.Config.Labels = map[string]string{LabelContent: img.Content}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{layer}
	c.History = append(c.History, struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	}{created, "evalfleet sandbox image"})
	return json.Marshal(c)
}

// newest is when the last of the files was changed, which stands for when the image was made.
func (img *Image) newest() time.Time {
	at := time.Unix(0, 0)
	for _, e := range img.tree.entries {
		if !e.cache && e.changed.After(at) {
			at = e.changed
		}
	}
	return at.UTC().Truncate(time.Second)
}

// layer writes the files.
func (img *Image) layer(ctx context.Context, w io.Writer, progress func(int64)) error {
	out := tar.NewWriter(w)
	var read int64
	for _, name := range img.tree.names() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if name == "/" {
			continue
		}
		e := img.tree.entries[name]
		header := &tar.Header{Name: name[1:], Mode: e.mode, Uid: e.uid, Gid: e.gid, ModTime: time.Unix(e.changed.Unix(), 0), Format: tar.FormatPAX}
		if e.changed.IsZero() {
			header.ModTime = time.Unix(0, 0)
		}
		switch e.kind {
		case folder:
			header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		case link:
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.target
		case regular:
			header.Typeflag, header.Size = tar.TypeReg, e.size
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if e.kind != regular {
			continue
		}
		if err := copyFile(out, e); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if read += e.size; progress != nil {
			progress(read)
		}
	}
	return out.Close()
}

func copyFile(w io.Writer, e *entry) error {
	r, err := e.open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}
