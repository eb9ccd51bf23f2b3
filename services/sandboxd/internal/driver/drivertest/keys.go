package drivertest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// counting is a command that leaves a line in a file each time it runs.
func counting(file, rest string) *sandboxv1.ExecSpec {
	return &sandboxv1.ExecSpec{Argv: []string{"bash", "-c", fmt.Sprintf("echo ran >> %s; %s", file, rest)}, Timeout: durationpb.New(patience)}
}

// keys: a command with a key runs once.
func keys(t *testing.T, h Harness) {
	b := newBox(t, h.New(t, t.TempDir()), nil)
	kill := func(t *testing.T, key string) (done bool) {
		require.NoError(t, b.client.Again(t.Context(), func(api guestv1.GuestServiceClient) error {
			resp, err := api.Kill(t.Context(), &guestv1.KillRequest{Key: key})
			done = resp.GetAlreadyDone()
			return err
		}))
		return done
	}
	t.Run("the same key gives the kept result", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		spec := counting("same", "echo out; echo err >&2; exit 5")
		first, err := b.run(b.client, "same", spec)
		require.NoError(t, err)
		assert.False(t, first.GetReplayed())
		again, err := b.run(b.client, "same", spec)
		require.NoError(t, err)
		assert.True(t, again.GetReplayed())
		assert.EqualValues(t, 5, again.GetExitCode())
		assert.Equal(t, "out\n", string(again.GetStdout()))
		assert.Equal(t, "err\n", string(again.GetStderr()))
		assert.Equal(t, "ran\n", b.sh("cat same"))
	})
	t.Run("a key is good for one content", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		_, err := b.run(b.client, "content", counting("content", "true"))
		require.NoError(t, err)
		_, err = b.run(b.client, "content", counting("content", "false"))
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)
	})
	t.Run("a failure to start is kept too", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		spec := &sandboxv1.ExecSpec{Argv: []string{"./later.sh"}}
		b.sh("echo 'echo hi' > later.sh")
		for range 2 {
			_, err := b.run(b.client, "failure", spec)
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION), "%v", err)
			b.sh("chmod +x later.sh")
		}
	})
	t.Run("many callers share one run", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				r, err := b.run(b.client, "shared", counting("shared", "sleep 0.2; echo done"))
				if assert.NoError(t, err) {
					assert.Equal(t, "done\n", string(r.GetStdout()))
				}
			})
		}
		waittest.Return(t, wg.Wait, "every caller of the key to be answered")
		assert.Equal(t, "ran\n", b.sh("cat shared"))
	})
	t.Run("attaching to nothing starts nothing", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		_, err := b.run(b.client, "never", nil)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN), "%v", err)
	})
	t.Run("a key that was cancelled before never runs", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		assert.False(t, kill(t, "entombed"))
		_, err := b.run(b.client, "entombed", counting("entombed", "true"))
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED), "%v", err)
		b.fails("cat entombed")
	})
	t.Run("cancelling kills the tree and the result says so", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		done := make(chan *sandboxv1.ExecResult, 1)
		go func() {
			r, err := b.run(b.client, "cancel", counting("cancel", "sleep 7654 & wait"))
			assert.NoError(t, err)
			done <- r
		}()
		b.sh("for i in $(seq 3000); do [ -e cancel ] && exit 0; sleep 0.01; done; exit 1")
		assert.False(t, kill(t, "cancel"))
		r := waittest.For(t, done, "the end of the command that was cancelled")
		assert.True(t, r.GetCancelled())
		assert.False(t, r.GetTimedOut())
		assert.Equal(t, "0", b.running("sleep", "7654"))
		assert.True(t, kill(t, "cancel"), "it has ended before")
	})
	t.Run("released results are forgotten", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		spec := counting("released", "true")
		_, err := b.run(b.client, "released", spec)
		require.NoError(t, err)
		require.NoError(t, b.client.Again(t.Context(), func(api guestv1.GuestServiceClient) error {
			_, err := api.Release(t.Context(), &guestv1.ReleaseRequest{Keys: []string{"released", "unknown"}})
			return err
		}))
		_, err = b.run(b.client, "released", nil)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_UNKNOWN), "%v", err)
	})
}
