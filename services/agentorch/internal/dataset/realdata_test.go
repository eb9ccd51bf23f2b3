package dataset_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/dataset"
)

// openReal opens a published dataset from the folder that EVALFLEET_DATA names.
func openReal(t *testing.T, name, fields string) *dataset.Dataset {
	t.Helper()
	dir := os.Getenv("EVALFLEET_DATA")
	if dir == "" {
		t.Skipf("SKIP: EVALFLEET_DATA is not set, so %s is not read", name)
	}
	f, err := dataset.ParseFields([]byte(fields))
	require.NoError(t, err)
	d, err := open(t, filepath.Join(dir, name), dataset.Options{Fields: f})
	require.NoError(t, err)
	require.NoError(t, d.AssignIDs())
	return d
}

func TestRealHumanEval(t *testing.T) {
	t.Parallel()
	d := openReal(t, "HumanEval.jsonl.gz", `{"input":{"template":"Complete this.\n\n{prompt}"},"id":"task_id","target":"canonical_solution","metadata":["test","entry_point"]}`)
	assert.Equal(t, "HumanEval", d.Name)
	require.Len(t, d.Samples, 164)
	assert.Equal(t, dataset.TextID("HumanEval/0"), d.Samples[0].ID)
	for _, s := range d.Samples {
		entry, ok := s.Metadata.Get("entry_point")
		name, isText := entry.(string)
		require.True(t, ok && isText)
		require.Contains(t, s.Text, "def "+name)
	}
	selected, unmatched, err := d.Select(dataset.Selection{IDs: []dataset.ID{dataset.TextID("HumanEval/1?")}})
	require.NoError(t, err)
	assert.Len(t, selected.Samples, 10)
	assert.Empty(t, unmatched)
}

func TestRealGSM8K(t *testing.T) {
	t.Parallel()
	d := openReal(t, "gsm8k_test_200.jsonl", `{"input":"question","target":{"column":"answer","pattern":"####\\s*(.+)$","group":1}}`)
	require.Len(t, d.Samples, 200)
	assert.Equal(t, []string{"18"}, d.Samples[0].Targets)
	for i, s := range d.Samples {
		_, err := strconv.ParseFloat(strings.ReplaceAll(s.Targets[0], ",", ""), 64)
		require.NoError(t, err, "sample %d", i+1)
	}
}
