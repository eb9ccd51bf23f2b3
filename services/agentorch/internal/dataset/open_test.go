package dataset_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/dataset"
)

// formats are those of endings.
var formats = map[string]dataset.Format{
	".jsonl": dataset.JSONLines, ".json": dataset.JSON, ".csv": dataset.CSV, ".tsv": dataset.CSV, ".tab": dataset.CSV,
}

// open reads a dataset from a file as its ending says. Values of files, setup and sandbox that name files below the file's directory become their paths.
func open(t testing.TB, path string, opts dataset.Options) (*dataset.Dataset, error) {
	t.Helper()
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	base := filepath.Base(path)
	if strings.EqualFold(filepath.Ext(base), ".gz") {
		base = base[:len(base)-len(".gz")]
	}
	ending := strings.ToLower(filepath.Ext(base))
	if opts.Format == "" {
		opts.Format = formats[ending]
	}
	if opts.Delimiter == "" && (ending == ".tsv" || ending == ".tab") {
		opts.Delimiter = "\t"
	}
	if opts.Name == "" {
		opts.Name = base[:len(base)-len(filepath.Ext(base))]
	}
	opts.Dir = filepath.Dir(path)
	return dataset.Read(t.Context(), file, opts)
}
