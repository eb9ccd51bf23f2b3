package rawlog_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/bench/internal/rawlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryRecordIsInTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, err := rawlog.Create(path)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for _, record := range []string{"a\n", "b\n", "c\n", "d\n"} {
		wg.Go(func() { assert.NoError(t, l.Append([]byte(record))) })
	}
	wg.Wait()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c", "d"}, slices.Sorted(slices.Values(strings.Fields(string(got)))))
	require.NoError(t, l.Close())
}
