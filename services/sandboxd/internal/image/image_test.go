package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func find(t *testing.T) *Image {
	t.Helper()
	img, err := Find(t.Context(), Config{SearchPath: os.Getenv("PATH")})
	require.NoError(t, err)
	return img
}

// unpack reads an archive: its manifest, its configuration and the headers of its layer.
func unpack(t *testing.T, archive io.Reader) (manifest []map[string]any, config configFile, layer map[string]*tar.Header) {
	t.Helper()
	layer = map[string]*tar.Header{}
	var sum string
	files := map[string][]byte{}
	for outer := tar.NewReader(archive); ; {
		h, err := outer.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if h.Name != layerName {
			files[h.Name], err = io.ReadAll(outer)
			require.NoError(t, err)
			continue
		}
		hash := sha256.New()
		body := io.TeeReader(outer, hash)
		for inner := tar.NewReader(body); ; {
			h, err := inner.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			above := path.Dir(path.Clean(h.Name))
			assert.True(t, above == "." || layer[above] != nil, "%s comes before its folder", h.Name)
			layer[path.Clean(h.Name)] = h
		}
		_, err = io.Copy(io.Discard, body)
		require.NoError(t, err)
		sum = fmt.Sprintf("sha256:%x", hash.Sum(nil))
	}
	require.NoError(t, json.Unmarshal(files[manifestName], &manifest))
	require.NoError(t, json.Unmarshal(files[manifest[0]["Config"].(string)], &config))
	assert.Equal(t, []string{sum}, config.RootFS.DiffIDs)
	return manifest, config, layer
}

func TestTheSameMachineGivesTheSameImage(t *testing.T) {
	t.Parallel()
	first, second := find(t), find(t)
	assert.Equal(t, first.Content, second.Content)
	a, b := sha256.New(), sha256.New()
	var last int64
	require.NoError(t, first.Write(t.Context(), a, "x:latest", func(read int64) { last = read }))
	require.NoError(t, second.Write(t.Context(), b, "x:latest", nil))
	assert.Equal(t, a.Sum(nil), b.Sum(nil))
	assert.Equal(t, first.Bytes, last, "progress comes to its end")
}

func TestWhatIsInTheImage(t *testing.T) {
	t.Parallel()
	img := find(t)
	var archive bytes.Buffer
	require.NoError(t, img.Write(t.Context(), &archive, "evalfleet/x:y", nil))
	manifest, config, layer := unpack(t, &archive)
	assert.Equal(t, []any{"evalfleet/x:y"}, manifest[0]["RepoTags"])
	assert.Equal(t, "agent", config.Config.User)
	assert.Equal(t, "/workspace", config.Config.WorkingDir)
	assert.Equal(t, img.Content, config.Config.Labels[LabelContent])
	for name, h := range layer {
		assert.Zero(t, h.Mode&0o6000, "%s keeps the powers of its owner", name)
		assert.True(t, h.Uid == 0 || h.Uid == userID, name)
		for _, no := range []string{"site-packages", "dist-packages", "root/.ssh", "etc/shadow", "root/.bash"} {
			assert.NotContains(t, name, no)
		}
	}
	passwd := layer["etc/passwd"]
	require.NotNil(t, passwd)
	assert.Less(t, passwd.Size, int64(400), "it is not this machine's")
	assert.EqualValues(t, 0o1777, layer["tmp"].Mode)
	assert.Equal(t, userID, layer["workspace"].Uid)

	// What programs of an earlier glibc ask for is there, if this machine has it.
	libraries := map[string]bool{}
	for name := range layer {
		libraries[path.Base(name)] = true
	}
	for _, name := range []string{"libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"} {
		here, err := filepath.Glob("/usr/lib/*/" + name)
		require.NoError(t, err)
		assert.Equal(t, len(here) > 0, libraries[name], name)
	}

	// Every program of PATH is there, and leads to a file.
	for _, name := range append([]string{"python3"}, needed...) {
		found := ""
		for dir := range strings.SplitSeq(strings.TrimPrefix(config.Config.Env[0], "PATH="), ":") {
			if found = resolve(layer, path.Join(dir, name)); found != "" {
				break
			}
		}
		require.NotEmpty(t, found, name)
		assert.EqualValues(t, 0o755, layer[found].Mode, name)
	}
}

// resolve follows links within a layer to a file, or returns nothing.
func resolve(layer map[string]*tar.Header, name string) string {
	name = strings.Trim(path.Clean(name), "/")
	for range 40 {
		done, parts := "", strings.Split(name, "/")
		moved := false
		for i, part := range parts {
			at := path.Join(done, part)
			h := layer[at]
			if h == nil {
				return ""
			}
			if h.Typeflag == tar.TypeSymlink {
				to := h.Linkname
				if !path.IsAbs(to) {
					to = path.Join(done, to)
				}
				name, moved = strings.Trim(path.Join(append([]string{to}, parts[i+1:]...)...), "/"), true
				break
			}
			done = at
		}
		if !moved {
			return name
		}
	}
	return ""
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	_, err := Find(t.Context(), Config{Python: "/no/such/python"})
	require.ErrorContains(t, err, "/no/such/python/bin")
	f := finder{tree: newTree(), folders: []string{t.TempDir()}}
	err = f.programs()
	require.ErrorContains(t, err, "bash, sh, cat")
	require.ErrorContains(t, err, "coreutils")
}

func TestATreeFollowsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "real/deep"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "real/deep/file"), []byte("x"), 0o600))
	require.NoError(t, os.Chmod(filepath.Join(dir, "real/deep/file"), 0o4755))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("../deep/file", filepath.Join(dir, "real/deep/other")))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	tr := newTree()
	got, err := tr.add(filepath.Join(dir, "link/deep/other"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "real/deep/file"), got)
	file := tr.entries[got]
	assert.EqualValues(t, 0o755, file.mode)
	assert.WithinDuration(t, time.Now(), file.changed, time.Minute)
	assert.Equal(t, "real", tr.entries[filepath.Join(dir, "link")].target)
	assert.Equal(t, "../deep/file", tr.entries[filepath.Join(dir, "real/deep/other")].target)
	assert.EqualValues(t, 0o755, tr.entries[filepath.Join(dir, "real")].mode, "all may walk there")
	_, err = tr.add(filepath.Join(dir, "loop"))
	require.ErrorIs(t, err, errLoop)
	_, err = tr.add(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
