package dataset_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// formats are those of endings.
var formats = map[string]dataset.Format{
	".jsonl": dataset.JSONLines, ".json": dataset.JSON, ".csv": dataset.CSV, ".tsv": dataset.CSV, ".tab": dataset.CSV,
}

// open reads a dataset from a file, in the format of its extension. Values of files, setup and sandbox that name files
// below the file's directory become their paths.
func open(t testing.TB, path string, opts dataset.Options) (*whole, error) {
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
	return read(t.Context(), file, opts)
}

// whole is a dataset that was read, with what an evaluation does to it.
type whole struct {
	Name    string
	Samples []dataset.Sample
}

// read reads a dataset.
func read(ctx context.Context, r io.Reader, opts dataset.Options) (*whole, error) {
	d := &whole{Name: opts.Name, Samples: []dataset.Sample{}}
	err := dataset.Each(ctx, r, opts, func(s dataset.Sample) error {
		d.Samples = append(d.Samples, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// assignIDs gives every sample its id.
func (d *whole) assignIDs() error {
	var ids dataset.IDs
	for i := range d.Samples {
		id, err := ids.Next(d.Samples[i].ID, func(i int) dataset.ID { return d.Samples[i].ID })
		if err != nil {
			return err
		}
		d.Samples[i].ID = id
	}
	return nil
}

// pick returns the selected samples in a random order, or in that of the file if there is no seed.
func (d *whole) pick(seed *int64, sel dataset.Selection) (picked *whole, unmatched []dataset.ID, err error) {
	order := make([]int, len(d.Samples))
	for i := range order {
		order[i] = i
	}
	if seed != nil {
		order = dataset.Order(*seed, len(d.Samples))
	}
	taken, unmatched, err := sel.Take(context.Background(), order, func(i int) dataset.ID { return d.Samples[i].ID })
	if err != nil {
		return nil, nil, err
	}
	picked = &whole{Name: d.Name, Samples: []dataset.Sample{}}
	for _, i := range taken {
		picked.Samples = append(picked.Samples, d.Samples[i])
	}
	return picked, unmatched, nil
}
