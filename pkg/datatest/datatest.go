// Package datatest finds the data sets that tests read: the published ones in the folder that EVALFLEET_DATA names, or
// else small ones of the same form, written for this repository, so that such tests run on every machine.
package datatest

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// The files of the repository.
const (
	HumanEval = "HumanEval.jsonl.gz"
	GSM8K     = "gsm8k_test_200.jsonl"
)

//go:embed small
var small embed.FS

// File is a data set on this machine.
type File struct {
	Path string
	// Rows is how many samples it has.
	Rows int
	// Published reports that it is the whole published data set and not the small one.
	Published bool
}

// Find returns the data set of that name. A file whose name ends in .gz is compressed.
func Find(t testing.TB, name string) File {
	t.Helper()
	f := File{Published: true}
	if folder, _ := config.Env("EVALFLEET_DATA"); folder != "" {
		path, err := filepath.Abs(filepath.Join(folder, name))
		require.NoError(t, err)
		f.Path = path
	} else {
		f.Path, f.Published = unpack(t, name), false
	}
	f.Rows = bytes.Count(Read(t, f.Path), []byte("\n{")) + 1
	return f
}

// unpack writes a small data set into a folder of the test.
func unpack(t testing.TB, name string) string {
	t.Helper()
	plain, zipped := strings.CutSuffix(name, ".gz")
	rows, err := small.ReadFile("small/" + plain)
	require.NoError(t, err)
	if zipped {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(rows)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		rows = packed.Bytes()
	}
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, rows, 0o600))
	return path
}

// Read returns the bytes of a data set, unpacked where its name ends in .gz.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	packed, err := os.ReadFile(path)
	require.NoError(t, err)
	if !strings.HasSuffix(path, ".gz") {
		return packed
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	rows, err := io.ReadAll(r)
	require.NoError(t, err)
	return rows
}
