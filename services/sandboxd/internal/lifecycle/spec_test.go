package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

func TestOpenFilesOfAllProcessesAreBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most        int64
		asked       *sandboxv1.Limits
		pids, files int64
	}{
		"neither":     {65_536, &sandboxv1.Limits{}, 256, 256},
		"much room":   {1 << 40, &sandboxv1.Limits{}, 256, 4096},
		"few pids":    {65_536, &sandboxv1.Limits{Pids: new(int64(16))}, 16, 4096},
		"many pids":   {65_536, &sandboxv1.Limits{Pids: new(int64(1024))}, 1024, 64},
		"many files":  {65_536, &sandboxv1.Limits{OpenFiles: new(int64(1024))}, 64, 1024},
		"both in it":  {65_536, &sandboxv1.Limits{Pids: new(int64(64)), OpenFiles: new(int64(1024))}, 64, 1024},
		"more of one": {65_536, &sandboxv1.Limits{Pids: new(int64(100_000))}, 100_000, 1},
	} {
		s := &Sandboxes{cfg: Config{MaxOpenFiles: tt.most}}
		require.NoError(t, s.shareOpenFiles(tt.asked), name)
		assert.Equal(t, tt.pids, tt.asked.GetPids(), name)
		assert.Equal(t, tt.files, tt.asked.GetOpenFiles(), name)
	}
	for name, tt := range map[string]struct {
		asked *sandboxv1.Limits
		field string
	}{
		"too few pids":             {&sandboxv1.Limits{Pids: new(int64(leastPIDs - 1))}, "spec.limits.pids"},
		"too few pids, and files":  {&sandboxv1.Limits{Pids: new(int64(1)), OpenFiles: new(int64(16))}, "spec.limits.pids"},
		"files that leave too few": {&sandboxv1.Limits{OpenFiles: new(int64(65_536/leastPIDs + 1))}, "spec.limits.open_files"},
		"files that leave none":    {&sandboxv1.Limits{OpenFiles: new(int64(1 << 40))}, "spec.limits.open_files"},
	} {
		err := (&Sandboxes{cfg: Config{MaxOpenFiles: 65_536}}).shareOpenFiles(tt.asked)
		require.ErrorContains(t, err, tt.field, name)
	}
	err := (&Sandboxes{cfg: Config{MaxOpenFiles: 65_536}}).shareOpenFiles(&sandboxv1.Limits{Pids: new(int64(512)), OpenFiles: new(int64(4096))})
	require.ErrorContains(t, err, "65536")
	require.ErrorContains(t, err, "max_open_files")
	assert.GreaterOrEqual(t, machineOpenFiles(), int64(bound.BoxOpenFiles))
}
