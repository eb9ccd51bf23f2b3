package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
)

// The kernel answers EIO for both.
func TestAFailingDiskIsNoFaultOfAProgram(t *testing.T) {
	t.Parallel()
	cut := filepath.Join(t.TempDir(), "cut")
	require.NoError(t, os.WriteFile(cut, []byte("\x7fELF"), 0o755))
	unreadable := fmt.Sprintf("/proc/%d/mem", os.Getppid()) // nothing is mapped at its begin
	if file, err := os.Open(unreadable); err != nil {
		t.Skip("SKIP: no file here fails to be read as on a failing disk, since this user may not trace processes:", err)
	} else {
		file.Close()
	}
	for path, faultOfProgram := range map[string]bool{cut: true, unreadable: false} {
		err := explain(syscall.EIO, &process.Command{Path: path, Argv: []string{path}, Dir: "/"}, false)
		_, bad := errors.AsType[*badProgram](err)
		assert.Equal(t, faultOfProgram, bad, "%s: %v", path, err)
	}
}
