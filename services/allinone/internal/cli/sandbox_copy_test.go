package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counted is standard input that counts how often it is read.
type counted struct{ reads atomic.Int64 }

func (c *counted) Read([]byte) (int, error) {
	c.reads.Add(1)
	return 0, io.EOF
}

// In a shell's loop, standard input is that of the loop and of the commands that follow.
func TestACopyReadsStandardInputOnlyWhereItIsTheSource(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.txt")
	require.NoError(t, os.WriteFile(path, []byte("of the file"), 0o600))
	s := &server{}
	flags := serve(t, s)
	for range 5 {
		var stdin counted
		c := beginWith(t, &stdin, append(flags, "sandbox", "cp", path, "sb-1:/work/a")...)
		require.Zero(t, c.end(t), c.stderr.String())
		assert.Zero(t, stdin.reads.Load())
	}
	c := beginWith(t, strings.NewReader("of the input"), append(flags, "sandbox", "cp", "-", "sb-1:/work/b")...)
	require.Zero(t, c.end(t), c.stderr.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Equal(t, "of the file", string(s.bodies["/work/a"]))
	assert.Equal(t, "of the input", string(s.bodies["/work/b"]))
}
