package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A sandbox with nothing but curl.
func TestSandboxOverREST(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.serve()
		r := h.rest()
		box := r.ok(t, "POST", "/api/v1/"+project+"/sandboxes", object{"spec": object{"driver": "local", "env": object{"COLOUR": "blue"}}})
		assert.Equal(t, "SANDBOX_STATE_READY", box["state"])
		name, _ := box["name"].(string)
		url := "/api/v1/" + name
		encoded := func(content string) string { return base64.StdEncoding.EncodeToString([]byte(content)) }

		r.ok(t, "POST", url+":writeFile", object{"path": "notes/a.txt", "content": encoded("one\n")})
		command := object{"spec": object{"argv": []string{"bash", "-c", "echo two $COLOUR >> notes/a.txt; cat notes/a.txt; exit 3"}}}
		result := r.ok(t, "POST", url+":exec", command, "Idempotency-Key: first")
		assert.Equal(t, encoded("one\ntwo blue\n"), at(result, "result", "stdout"))
		assert.EqualValues(t, 3, at(result, "result", "exitCode"), "a command that fails is a result")
		result = r.ok(t, "POST", url+":exec", command, "Idempotency-Key: first")
		assert.Equal(t, true, at(result, "result", "replayed"), "the same key is the same command")
		assert.Equal(t, encoded("one\ntwo blue\n"), r.ok(t, "GET", url+":readFile?path=notes/a.txt", nil)["content"], "it ran once")
		assert.Equal(t, "a.txt", at(r.ok(t, "GET", url+":listFiles?path=notes", nil), "files", 0, "path"))

		status, answer := r.do(t, "GET", url+":readFile?path=nothing", nil)
		assert.Equal(t, 404, status)
		assert.Contains(t, answer, "FILE_NOT_FOUND")
		assert.Equal(t, name, at(r.ok(t, "GET", "/api/v1/"+project+"/sandboxes", nil), "sandboxes", 0, "name"))
		r.ok(t, "DELETE", url, nil)
		assert.Nil(t, at(r.ok(t, "GET", "/api/v1/"+project+"/sandboxes", nil), "sandboxes", 0))
		status, answer = r.do(t, "POST", url+":exec", command)
		assert.Equal(t, 400, status)
		assert.Contains(t, answer, "SANDBOX_TERMINATED")
	})
}

// Content that is too large for one message is sent in chunks, through the one address.
func TestLargeFilesAndBlobs(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		ctx := within(t)
		content := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16) // 5 MiB
		sum := sha256.Sum256(content)
		hash := hex.EncodeToString(sum[:])
		chunks := func(send func(chunk []byte) error) {
			for rest := content; len(rest) > 0; rest = rest[min(1<<20, len(rest)):] {
				require.NoError(t, send(rest[:min(1<<20, len(rest))]))
			}
		}

		up, err := c.blobs.UploadBlob(ctx)
		require.NoError(t, err)
		require.NoError(t, up.Send(&blobv1.UploadBlobRequest{Parent: project}))
		chunks(func(chunk []byte) error { return up.Send(&blobv1.UploadBlobRequest{Chunk: chunk}) })
		ref, err := up.CloseAndRecv()
		require.NoError(t, err)
		assert.Equal(t, hash, ref.GetHash())
		down, err := c.blobs.DownloadBlob(ctx, &blobv1.DownloadBlobRequest{Parent: project, Hash: hash, Offset: 16})
		require.NoError(t, err)
		assert.Equal(t, content[16:], gather(t, func() ([]byte, error) {
			m, err := down.Recv()
			return m.GetChunk(), err
		}))
		_, err = c.blobs.GetBlob(ctx, &blobv1.GetBlobRequest{Parent: "projects/other", Hash: hash})
		assert.ErrorContains(t, err, hash, "another project has bodies of its own")
		r := h.rest()
		small := r.ok(t, "POST", "/api/v1/"+project+"/blobs", object{"content": "c21hbGw=", "mediaType": "text/plain"})
		assert.Equal(t, "c21hbGw=", r.ok(t, "GET", fmt.Sprintf("/api/v1/%s/blobs/%s", project, small["hash"]), nil)["content"])

		box, err := c.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Parent: project, Spec: &sandboxv1.SandboxSpec{Driver: "local"}})
		require.NoError(t, err)
		upload, err := c.sandboxes.UploadFile(ctx)
		require.NoError(t, err)
		require.NoError(t, upload.Send(&sandboxv1.UploadFileRequest{Sandbox: box.GetName(), Path: "large.bin"}))
		chunks(func(chunk []byte) error {
			return upload.Send(&sandboxv1.UploadFileRequest{Chunk: chunk})
		})
		_, err = upload.CloseAndRecv()
		require.NoError(t, err)
		result, err := c.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{Sandbox: box.GetName(), Spec: &sandboxv1.ExecSpec{Argv: []string{"sha256sum", "large.bin"}}})
		require.NoError(t, err)
		assert.Contains(t, string(result.GetResult().GetStdout()), hash)
		download, err := c.sandboxes.DownloadFile(ctx, &sandboxv1.DownloadFileRequest{Sandbox: box.GetName(), Path: "large.bin"})
		require.NoError(t, err)
		assert.Equal(t, content, gather(t, func() ([]byte, error) {
			m, err := download.Recv()
			return m.GetChunk(), err
		}))
	})
}

// Files of a sample that are blobs come from the evaluation to its sandbox, with their modes, also those that are too
// large for one message. One that the project does not have is refused when the evaluation is made.
func TestFilesOfASampleMayBeBlobs(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		put := func(content string) *agentv1.SampleFile {
			up, err := c.blobs.UploadBlob(within(t))
			require.NoError(t, err)
			require.NoError(t, up.Send(&blobv1.UploadBlobRequest{Parent: project}))
			for chunk := range slices.Chunk([]byte(content), 1<<20) {
				require.NoError(t, up.Send(&blobv1.UploadBlobRequest{Chunk: chunk}))
			}
			ref, err := up.CloseAndRecv()
			require.NoError(t, err)
			return &agentv1.SampleFile{Body: &agentv1.SampleFile_Blob{Blob: ref}}
		}
		run := put("#!/bin/sh\necho ran\n")
		run.Mode = 0o755
		spec := asked(1, scripted(t, object{"min_turn": 1, "output": "yes"}))
		spec.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {Driver: "local"}, "other": {Driver: "local"}}
		sample := spec.GetDataset().GetInline().GetSamples()[0]
		sample.Files = map[string]*agentv1.SampleFile{"data/large": put(strings.Repeat("x", 5<<20)), "run": run, "other:there": put("over there")}
		exec := func(sandbox, program string) *agentv1.ScorerRef {
			return &agentv1.ScorerRef{Name: "exec", ParamsJson: text(t, object{"language": "bash", "cwd": ".", "sandbox": sandbox, "program": program})}
		}
		spec.Scorers = []*agentv1.ScorerRef{
			exec("default", `[ "$(./run)" = ran ] && [ "$(wc -c < data/large)" = 5242880 ] && [ "$(tr -d x < data/large)" = "" ]`),
			exec("other", `[ "$(cat there)" = "over there" ] && [ ! -e run ]`),
		}
		eval := c.await(t, c.create(t, spec))
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
		assert.InDelta(t, 1, metric(t, eval, "exec", "accuracy"), 0)
		assert.InDelta(t, 1, metric(t, eval, "exec1", "accuracy"), 0)

		missing := strings.Repeat("0", 64)
		sample.Files = map[string]*agentv1.SampleFile{"a": {Body: &agentv1.SampleFile_Blob{Blob: &contentv1.BlobRef{Hash: missing}}}}
		_, err := c.evals.CreateEval(within(t), &agentv1.CreateEvalRequest{Parent: project, Spec: spec})
		assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "%v", err)
		assert.ErrorContains(t, err, missing)
	})
}

// gather joins the chunks of a stream.
func gather(t *testing.T, next func() ([]byte, error)) []byte {
	t.Helper()
	var all []byte
	for {
		chunk, err := next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, chunk...)
	}
}
