package dataset_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/datatest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// openReal opens a data set that tests share.
func openReal(t *testing.T, name, fields string) (*whole, datatest.File) {
	t.Helper()
	file := datatest.Find(t, name)
	f, err := dataset.ParseFields([]byte(fields))
	require.NoError(t, err)
	d, err := open(t, file.Path, dataset.Options{Fields: f})
	require.NoError(t, err)
	require.NoError(t, d.assignIDs())
	require.Len(t, d.Samples, file.Rows)
	return d, file
}

func TestRealHumanEval(t *testing.T) {
	t.Parallel()
	d, file := openReal(t, datatest.HumanEval, `{"input":{"template":"Complete this.\n\n{prompt}"},"id":"task_id","target":"canonical_solution","metadata":["test","entry_point"]}`)
	assert.Equal(t, "HumanEval", d.Name)
	if file.Published {
		require.Len(t, d.Samples, 164)
	}
	assert.Equal(t, dataset.TextID("HumanEval/0"), d.Samples[0].ID)
	for _, s := range d.Samples {
		entry, ok := s.Metadata.Get("entry_point")
		name, isText := entry.(string)
		require.True(t, ok && isText)
		require.Contains(t, s.Text, "def "+name)
	}
	selected, unmatched, err := d.pick(nil, dataset.Selection{IDs: []dataset.ID{dataset.TextID("HumanEval/1?")}})
	require.NoError(t, err)
	assert.Len(t, selected.Samples, min(10, file.Rows-10))
	assert.Empty(t, unmatched)
}

func TestRealGSM8K(t *testing.T) {
	t.Parallel()
	d, file := openReal(t, datatest.GSM8K, `{"input":"question","target":{"column":"answer","pattern":"####\\s*(.+)$","group":1}}`)
	if file.Published {
		require.Len(t, d.Samples, 200)
		assert.Equal(t, []string{"18"}, d.Samples[0].Targets)
	}
	for i, s := range d.Samples {
		_, err := strconv.ParseFloat(strings.ReplaceAll(s.Targets[0], ",", ""), 64)
		require.NoError(t, err, "sample %d", i+1)
	}
}
