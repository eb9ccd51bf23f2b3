package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// followed is the content of a stream.
type followed struct {
	stdout, stderr []byte
	skipped        int64
	started        *sandboxv1.ExecStarted
	ended          *sandboxv1.ExecResult
}

// follow runs or attaches to a command and reads its stream; each is called with every event, and its error ends the
// reading.
func (b *box) follow(req *guestv1.StreamRequest, each func(*followed) error) (*followed, error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	var f followed
	err := b.client.Once(ctx, func(api guestv1.GuestServiceClient) error {
		stream, err := api.Stream(ctx, req)
		if err != nil {
			return err
		}
		for {
			event, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			switch {
			case event.GetStarted() != nil:
				f.started = event.GetStarted()
			case event.GetEnded() != nil:
				f.ended = event.GetEnded()
			case event.GetOutput().GetStream() == sandboxv1.ExecStream_EXEC_STREAM_STDOUT:
				assert.Equal(b, req.GetStdoutOffset()+int64(len(f.stdout))+event.GetOutput().GetSkippedBytes(), event.GetOutput().GetOffset())
				f.stdout = append(f.stdout, event.GetOutput().GetData()...)
				f.skipped += event.GetOutput().GetSkippedBytes()
			case event.GetOutput().GetStream() == sandboxv1.ExecStream_EXEC_STREAM_STDERR:
				f.stderr = append(f.stderr, event.GetOutput().GetData()...)
			}
			if each != nil {
				if err := each(&f); err != nil {
					return err
				}
			}
		}
	})
	return &f, err
}

// abandon runs a command without a key and leaves once it has created a file.
func (b *box) abandon(spec *sandboxv1.ExecSpec, file string) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.client.Once(ctx, func(api guestv1.GuestServiceClient) error {
			_, err := api.Run(ctx, &guestv1.RunRequest{Spec: spec})
			return err
		})
	}()
	b.sh("for i in $(seq 3000); do [ -e %s ] && exit 0; sleep 0.01; done; exit 1", file)
	cancel()
	require.ErrorIs(b, waittest.For(b, done, "the end of the call that was left"), context.Canceled)
}

// streams: output as it arrives, and input by offset.
func streams(t *testing.T, h Harness) {
	b := newBox(t, h.New(t, t.TempDir()), nil)
	t.Run("a command waits for a reader that takes everything", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		const size = 12 << 20 // more than all that lies between the command and its reader
		spec := &sandboxv1.ExecSpec{
			Argv: []string{"sh", "-c", "head -c 12M /dev/zero; echo end >&2"}, MaxOutputBytes: proto.Int64(128 << 10), Timeout: durationpb.New(patience),
		}
		waited := false
		f, err := b.follow(&guestv1.StreamRequest{Run: &guestv1.RunRequest{Key: "slow", Spec: spec}, Lossless: true}, func(f *followed) error {
			if len(f.stdout) == 0 || waited {
				return nil
			}
			waited = true
			// Nothing is read here in the meantime: another command of the box takes longer than printing it all would.
			r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "head -c 64M /dev/zero | wc -c"}, Timeout: durationpb.New(patience)})
			assert.Equal(t, "67108864\n", string(r.GetStdout()))
			return err
		})
		require.NoError(t, err)
		assert.True(t, waited)
		assert.Zero(t, f.skipped)
		assert.Len(t, f.stdout, size)
		assert.Equal(t, "end\n", string(f.stderr))
		assert.Zero(t, f.ended.GetExitCode())
		assert.EqualValues(t, size, f.ended.GetStdoutBytes())
		assert.Nil(t, f.ended.StdoutCutAt, "the reader had all of it")
	})
	t.Run("a command that waits for a reader ends when its time is over, and when the reader leaves", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		flood := []string{"sh", "-c", "head -c 12M /dev/zero; echo end >&2"}
		for key, timeout := range map[string]time.Duration{"late": time.Second, "left": patience} {
			spec := &sandboxv1.ExecSpec{Argv: flood, MaxOutputBytes: proto.Int64(128 << 10), Timeout: durationpb.New(timeout)}
			run := &guestv1.RunRequest{Key: key, Spec: spec}
			_, err := b.follow(&guestv1.StreamRequest{Run: run, Lossless: true}, func(f *followed) error {
				if len(f.stdout) == 0 {
					return nil
				}
				if timeout < patience {
					r, err := b.run(b.client, key, spec) // the end, for which somebody else waits
					assert.NoError(t, err)
					assert.True(t, r.GetTimedOut())
				}
				return context.Canceled
			})
			require.ErrorIs(t, err, context.Canceled)
			r, err := b.run(b.client, key, spec)
			require.NoError(t, err)
			assert.Equal(t, timeout < patience, r.GetTimedOut())
		}
	})
	t.Run("output comes while the command runs", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		spec := &sandboxv1.ExecSpec{Argv: []string{"bash", "-c", "echo one; echo err >&2; until [ -e go ]; do sleep 0.01; done; echo two; exit 3"}}
		released := false
		f, err := b.follow(&guestv1.StreamRequest{Run: &guestv1.RunRequest{Spec: spec}}, func(f *followed) error {
			if !released && string(f.stdout) == "one\n" && string(f.stderr) == "err\n" {
				released = true
				b.sh("touch go")
			}
			return nil
		})
		require.NoError(t, err)
		assert.Positive(t, f.started.GetPid())
		assert.Equal(t, "one\ntwo\n", string(f.stdout))
		require.NotNil(t, f.ended)
		assert.EqualValues(t, 3, f.ended.GetExitCode())
		assert.Empty(t, f.ended.GetStdout(), "output is not told twice")
	})
	t.Run("3 MiB arrive whole", func(t *testing.T) {
		t.Parallel()
		spec := &sandboxv1.ExecSpec{Argv: []string{"python3", "-c", "import sys\nfor i in range(393216): sys.stdout.write('%07d\\n' % i)"}}
		f, err := b.sub(t).follow(&guestv1.StreamRequest{Run: &guestv1.RunRequest{Spec: spec}}, nil)
		require.NoError(t, err)
		require.Len(t, f.stdout, 3<<20)
		assert.True(t, bytes.HasPrefix(f.stdout, []byte("0000000\n0000001\n")))
		assert.True(t, bytes.HasSuffix(f.stdout, []byte("0393215\n")))
		assert.Zero(t, f.ended.GetExitCode())
	})
	t.Run("who comes back gets what is missing, and gaps are told", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		spec := &sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "printf 0123456789abcdefghij"}, MaxOutputBytes: new(int64(8))}
		_, err := b.run(b.client, "cut", spec)
		require.NoError(t, err)
		for offset, want := range map[int64]struct {
			data    string
			skipped int64
		}{0: {"0123ghij", 12}, 2: {"23ghij", 12}, 10: {"ghij", 6}, 18: {"ij", 0}, 20: {"", 0}} {
			f, err := b.follow(&guestv1.StreamRequest{Run: &guestv1.RunRequest{Key: "cut"}, StdoutOffset: offset}, nil)
			require.NoError(t, err)
			assert.Equal(t, want.data, string(f.stdout))
			assert.Equal(t, want.skipped, f.skipped)
			assert.True(t, f.ended.GetReplayed())
		}
	})
	t.Run("input by offset, each byte once", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		spec := &sandboxv1.ExecSpec{Argv: []string{"cat"}, StdinOpen: true, Stdin: []byte("he")}
		done := make(chan *followed, 1)
		go func() {
			f, err := b.follow(&guestv1.StreamRequest{Run: &guestv1.RunRequest{Key: "in", Spec: spec}}, nil)
			assert.NoError(t, err)
			done <- f
		}()
		write := func(offset int64, data string, eof bool) (int64, error) {
			var at int64
			err := b.client.Again(t.Context(), func(api guestv1.GuestServiceClient) error {
				resp, err := api.WriteInput(t.Context(), &guestv1.WriteInputRequest{Key: "in", Offset: offset, Data: []byte(data), Eof: eof})
				at = resp.GetOffset()
				return err
			})
			return at, err
		}
		require.Eventually(t, func() bool { at, err := write(2, "", false); return err == nil && at == 2 }, waittest.Bound, 5*time.Millisecond)
		at, err := write(2, "llo", false)
		require.NoError(t, err)
		assert.EqualValues(t, 5, at)
		at, err = write(2, "llo w", false)
		require.NoError(t, err)
		assert.EqualValues(t, 7, at, "what was there already is skipped")
		_, err = write(9, "x", false)
		require.Error(t, err, "a gap is refused")
		at, err = write(7, "orld\n", true)
		require.NoError(t, err)
		assert.EqualValues(t, 12, at)
		f := waittest.For(t, done, "the end of the command whose input has ended")
		assert.Equal(t, "hello world\n", string(f.stdout))
		assert.Zero(t, f.ended.GetExitCode())
		_, err = write(12, "more", false)
		require.Error(t, err, "it is closed")
	})
}
