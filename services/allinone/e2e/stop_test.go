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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// stopsWithin bounds how long a server takes to stop, at any work. What runs is left to the next server; what is only
// asked fails.
const stopsWithin = 5 * time.Second

// A server that is asked to stop while it checks a large data set ends in time: the check ends with its call, and no
// evaluation is made.
func TestStopDuringTheCheckOfADataset(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	c := h.serve()
	rows := c.upload(t, manyRows(t))
	spec := &agentv1.EvalSpec{
		Task:    "many",
		Dataset: &agentv1.Dataset{Name: "many", Source: &agentv1.Dataset_File{File: &agentv1.DatasetFile{Blob: rows, Format: "jsonl"}}},
		Models:  []*agentv1.ModelRef{scripted(t, object{"output": "yes"})},
	}
	ctx, made := within(t), make(chan error, 1)
	go func() {
		_, err := c.evals.CreateEval(ctx, &agentv1.CreateEvalRequest{Parent: project, Spec: spec})
		made <- err
	}()
	server := h.processes[single.front()]
	eventually(t, func() bool { return reads(server.cmd.Process.Pid, rows.GetHash()) }, "the server reads the data set")

	asked := time.Now()
	require.NoError(t, server.cmd.Process.Signal(syscall.SIGTERM))
	server.await(t)
	took := time.Since(asked)
	require.NoError(t, server.err, "it exits with 0")
	assert.Less(t, took, stopsWithin)
	t.Logf("stopped in %v", took)
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

// upload keeps a body.
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

// reads reports whether a process has the file of a body open.
func reads(pid int, hash string) bool {
	files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
	for _, name := range files {
		if to, err := os.Readlink(name); err == nil && strings.Contains(to, hash) {
			return true
		}
	}
	return false
}
