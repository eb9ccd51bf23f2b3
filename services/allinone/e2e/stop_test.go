package e2e_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A server that stops while it checks a large data set does not read it to its end: the check ends with its call, and
// no evaluation is created.
func TestStopDuringTheCheckOfADataset(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	c := h.serve()
	rows := c.upload(t, manyRows(t))
	models := []*agentv1.ModelRef{scripted(t, object{"output": "yes"})}
	made := make(chan error, 1)
	go func() {
		_, err := c.evals.CreateEval(within(t), &agentv1.CreateEvalRequest{Parent: project, Spec: &agentv1.EvalSpec{
			Task:    "many",
			Dataset: &agentv1.Dataset{Name: "many", Source: &agentv1.Dataset_File{File: &agentv1.DatasetFile{Blob: rows, Format: agentv1.DatasetFormat_DATASET_FORMAT_JSONL}}},
			Models:  models,
		}})
		made <- err
	}()
	server := h.processes[single.front()]
	pid := server.cmd.Process.Pid
	eventually(t, func() bool { return position(pid, rows.GetHash()) > 0 }, "the server reads the data set")

	require.NoError(t, server.cmd.Process.Signal(syscall.SIGTERM))
	var read int64
	eventually(t, func() bool {
		read = max(read, position(pid, rows.GetHash()))
		return server.over()
	}, "the server stops")
	require.NoError(t, server.err, "it exits with 0")
	assert.Less(t, read, rows.GetSize()*9/10, "the rest of the data set is left unread")
	assert.Equal(t, codes.Unavailable, rpcerr.Code(<-made), "the check was cut off, and may be asked for again")
	list, err := h.serve().evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	assert.Empty(t, list.GetEvals())
}

// manyRows is a packed data set that takes seconds to read.
func manyRows(t *testing.T) []byte {
	t.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	require.NoError(t, err)
	for i := range bound.DatasetRows {
		_, err := fmt.Fprintf(w, "{\"id\": %d, \"input\": \"question %d\", \"target\": \"yes\", \"note\": \"%x\"}\n", i, i, 7919*i)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return packed.Bytes()
}

// upload stores a body.
func (c *client) upload(t *testing.T, content []byte) *contentv1.BlobRef {
	t.Helper()
	up, err := c.blobs.UploadBlob(within(t))
	require.NoError(t, err)
	require.NoError(t, up.Send(&blobv1.UploadBlobRequest{Parent: project}))
	for len(content) > 0 {
		n := min(1<<20, len(content))
		require.NoError(t, up.Send(&blobv1.UploadBlobRequest{Chunk: content[:n]}))
		content = content[n:]
	}
	ref, err := up.CloseAndRecv()
	require.NoError(t, err)
	return ref
}

// position returns how far a process has read the file of a body, in bytes: 0 when it does not have the file open.
func position(pid int, hash string) (most int64) {
	process := filepath.Join("/proc", strconv.Itoa(pid))
	files, _ := filepath.Glob(filepath.Join(process, "fd", "*"))
	for _, name := range files {
		if to, err := os.Readlink(name); err != nil || !strings.Contains(to, hash) {
			continue
		}
		info, _ := os.ReadFile(filepath.Join(process, "fdinfo", filepath.Base(name)))
		var at int64
		_, _ = fmt.Sscanf(string(info), "pos: %d", &at) // A file that was closed meanwhile has none.
		most = max(most, at)
	}
	return most
}
