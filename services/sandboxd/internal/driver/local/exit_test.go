package local

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// exits are the ways in which a guest program ends before it serves, and whether each is a shortage.
var exits = map[string]struct {
	script   string
	shortage bool
}{
	"a failure of its own":     {`exit 1`, false},
	"a transient failure":      {`exit 75`, true},
	"wrong arguments":          {`exit 2`, false},
	"killed":                   {`kill -KILL $$`, true},
	"a system call it may not": {`kill -SYS $$`, false},
	"no memory of its own":     {`kill -SEGV $$`, false},
	"a panic":                  {`printf 'panic: index out of range\n\ngoroutine 1 [running]:\n' >&2; exit 2`, false},
	"no thread":                {`printf 'runtime: failed to create new OS thread (have 2 already; errno=11)\nfatal error: newosproc\n' >&2; exit 2`, true},
	"no memory":                {`printf 'fatal error: runtime: cannot allocate memory\n%05000d\n' 0 >&2; exit 2`, true},
}

func TestWhichExitsOfTheGuestAreShortages(t *testing.T) {
	t.Parallel()
	for name, test := range exits {
		var words bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "sh", "-c", test.script)
		cmd.Stderr = &words
		require.Error(t, cmd.Run(), name)
		assert.Equal(t, test.shortage, transientExit(cmd.ProcessState, words.Bytes()), name)
	}
}

// TestAGuestThatAlwaysDiesIsNotWaitedFor creates boxes with guest programs that end while they start.
func TestAGuestThatAlwaysDiesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	if _, err := newTestDriver(t).groups(); err != nil {
		t.Skip("SKIP: this user can make no cgroups: ", err)
	}
	for name, test := range exits {
		if strings.HasPrefix(test.script, "kill") {
			continue // The first process of a namespace cannot kill itself.
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guest := filepath.Join(t.TempDir(), "guestd")
			require.NoError(t, os.WriteFile(guest, []byte("#!/bin/sh\n"+test.script+"\n"), 0o755))
			d, err := New(Config{Dir: t.TempDir(), GuestPath: guest, SearchPath: os.Getenv("PATH")})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, d.Close()) })
			spec := mayBeUnisolated("dies-" + strings.ToLower(rand.Text()))
			spec.AllowUnisolated = false
			_, err = d.Create(t.Context(), spec)
			assert.Equal(t, test.shortage, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA), "%v", err)
			assert.Equal(t, !test.shortage, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INTERNAL), "%v", err)
		})
	}
}
