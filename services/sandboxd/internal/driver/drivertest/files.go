package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

func (b *box) read(req *guestv1.ReadFileRequest) (content []byte, info *sandboxv1.FileInfo, err error) {
	b.Helper()
	err = b.client.Once(b.Context(), func(api guestv1.GuestServiceClient) error {
		stream, err := api.ReadFile(waittest.Context(b), req)
		for err == nil {
			var piece *guestv1.ReadFileResponse
			if piece, err = stream.Recv(); err == nil {
				content = append(content, piece.GetChunk()...)
				if piece.GetInfo() != nil {
					info = piece.GetInfo()
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return content, info, err
}

func (b *box) write(target *guestv1.WriteFileRequest, content []byte) (info *sandboxv1.FileInfo, err error) {
	b.Helper()
	err = b.client.Once(b.Context(), func(api guestv1.GuestServiceClient) (err error) {
		info, err = client.Upload(b.Context(), api, target, func() ([]byte, error) {
			if len(content) == 0 {
				return nil, io.EOF
			}
			piece := content[:min(len(content), client.Chunk)]
			content = content[len(piece):]
			return piece, nil
		})
		return err
	})
	return info, err
}

// files: written content is read, by commands too, and every refusal has its reason.
func files(t *testing.T, h Harness) {
	b := newBox(t, h.New(t, t.TempDir()), nil)
	t.Run("round trips", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		for path, content := range map[string][]byte{
			"text.txt": []byte("a\r\nb\n"), "empty": nil, "deep/er/file": []byte("1"), "with space": []byte("é"), "/tmp/abs": {0, 255}, "large": bytes.Repeat([]byte("0123456789abcdef"), 2<<20),
		} {
			info, err := b.write(&guestv1.WriteFileRequest{Path: path}, content)
			require.NoError(t, err, path)
			assert.EqualValues(t, len(content), info.GetSize())
			assert.EqualValues(t, 0o644, info.GetMode())
			got, info, err := b.read(&guestv1.ReadFileRequest{Path: path})
			require.NoError(t, err, path)
			assert.True(t, bytes.Equal(content, got), path)
			assert.Equal(t, sandboxv1.FileType_FILE_TYPE_FILE, info.GetType())
		}
		assert.Equal(t, "1", b.sh("cat deep/er/file"))
		b.sh("echo more >> text.txt; echo x > deep/mine; rm -r deep large") // the command's user owns the files that were written for it
	})
	t.Run("overwriting is at once and keeps the mode", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("echo 'echo old' > run.sh; chmod 755 run.sh")
		_, err := b.write(&guestv1.WriteFileRequest{Path: "run.sh"}, []byte("echo new"))
		require.NoError(t, err)
		assert.Equal(t, "new\n", b.sh("sh -c ./run.sh"))
		_, err = b.write(&guestv1.WriteFileRequest{Path: "run.sh", Mode: 0o600}, []byte("x"))
		require.NoError(t, err)
		assert.Equal(t, "600\n", b.sh("stat -c %%a run.sh"))
	})
	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("mkdir dir; mkfifo fifo; head -c 2000 /dev/zero > big; ln -s loop loop; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'")
		for path, reason := range map[string]errorsv1.ErrorReason{
			"none": errorsv1.ErrorReason_ERROR_REASON_FILE_NOT_FOUND,
			"dir":  errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, "/etc": errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY,
			".": errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, "..": errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY,
			"fifo": errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH, "sock": errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH,
			"/dev/zero": errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH, "loop": errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH,
			"a\x00b": errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH, "big": errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT,
		} {
			_, _, err := b.read(&guestv1.ReadFileRequest{Path: path, MaxBytes: 1000})
			assert.Equal(t, reason, rpcerr.Reason(err), "%q: %v", path, err)
		}
		for path, reason := range map[string]errorsv1.ErrorReason{
			"dir": errorsv1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY, "fifo": errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH,
			"/usr/x": errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION, "big/x": errorsv1.ErrorReason_ERROR_REASON_INVALID_PATH,
		} {
			_, err := b.write(&guestv1.WriteFileRequest{Path: path}, []byte("x"))
			assert.Equal(t, reason, rpcerr.Reason(err), "%q: %v", path, err)
		}
	})
	t.Run("rights are those of the user", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("echo x > hidden; chmod 000 hidden; echo x > fixed; chmod 444 fixed")
		_, _, err := b.read(&guestv1.ReadFileRequest{Path: "hidden"})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION), "%v", err)
		_, err = b.write(&guestv1.WriteFileRequest{Path: "fixed"}, nil)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PERMISSION), "%v", err)
		if h.OneUser {
			return
		}
		_, _, err = b.read(&guestv1.ReadFileRequest{Path: "hidden", User: "root"})
		require.NoError(t, err)
		_, err = b.write(&guestv1.WriteFileRequest{Path: "/tmp/of-nobody", User: "nobody"}, nil)
		require.NoError(t, err)
		assert.Equal(t, "nobody\n", b.sh("stat -c %%U /tmp/of-nobody"))
	})
	t.Run("lists and removes", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh("mkdir -p list/sub; echo x > list/a; echo x > list/sub/b")
		var names []string
		require.NoError(t, b.client.Once(t.Context(), func(api guestv1.GuestServiceClient) error {
			resp, err := api.ListFiles(t.Context(), &guestv1.ListFilesRequest{Path: "list", MaxDepth: 2})
			for _, f := range resp.GetFiles() {
				names = append(names, f.GetPath())
			}
			return err
		}))
		assert.Equal(t, []string{"a", "sub", "sub/b"}, names)
		require.NoError(t, b.client.Once(t.Context(), func(api guestv1.GuestServiceClient) error {
			_, err := api.RemoveFile(t.Context(), &guestv1.RemoveFileRequest{Path: "list", Recursive: true})
			return err
		}))
		b.fails("ls list")
	})
	t.Run("names that are no UTF-8", func(t *testing.T) {
		t.Parallel()
		b := b.sub(t)
		b.sh(`mkdir odd; cd odd; touch "$(printf 'a\377b')" 'a\xffb' 'c\d' 'é'; ln -s "$(printf '\376')" link; touch plain`)
		names, err := b.list("odd")
		require.NoError(t, err)
		assert.Equal(t, []string{`a\x5cxffb`, `a\xffb`, `c\d`, "link", "plain", "é"}, names, "no two names are shown as one")
	})
	t.Run("files of accounts that are none", func(t *testing.T) {
		t.Parallel()
		users := b.users(h)
		owner, other := users[len(users)-1], "4711"
		if h.OneUser {
			other = "1000"
		}
		for name, make := range map[string]string{
			"a pipe": "mkfifo $f", "a device": "ln -s /dev/zero $f", "the guest's": "ln -s /proc/self/fd/0 $f", "a folder": "mkdir $f", "a loop": "ln -s $f $f",
			"too large": "python3 -c \"print('x:x:1:1::/:/bin/sh\\n' * 200000)\" > $f",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBox(t, b.driver, nil) // its accounts are not to be found any more
				b.sh("true")
				r, err := b.exec(&sandboxv1.ExecSpec{Argv: []string{"sh", "-c", "for f in /etc/passwd /etc/group; do mv $f $f.old; " + make + " || exit 1; done"}, User: owner})
				require.NoError(t, err)
				require.Zero(t, r.GetExitCode(), "%s", r.GetStderr())
				r, err = b.exec(&sandboxv1.ExecSpec{Argv: []string{"id", "-u"}, User: other})
				require.NoError(t, err)
				assert.Equal(t, other+"\n", string(r.GetStdout()))
				_, err = b.exec(&sandboxv1.ExecSpec{Argv: []string{"true"}, User: "no-such-user"})
				require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
				b.client.Close()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err = b.connect("").Hello(ctx)
				require.NoError(t, ctx.Err(), "the guest does not answer a later host")
				assert.True(t, err == nil || rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
			})
		}
	})
}
