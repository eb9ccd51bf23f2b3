package agentorch

import (
	"context"
	"errors"
	"io"

	"github.com/evalfleet/evalfleet/pkg/blob"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/server"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/turn"
)

// evalRuns is the RunService as evals call it: in the same process, and allowed to say which sample a run is.
type evalRuns struct {
	*server.Runs
	// samples makes runs however long it takes.
	samples *server.Runs
	// waiting is what a run waits for that its journal does not tell.
	waiting func(run string) *agentv1.RunWait
}

// CreateRun implements eval.Runs.
func (r evalRuns) CreateRun(ctx context.Context, request *agentv1.CreateRunRequest) (*agentv1.Run, error) {
	return r.samples.Create(ctx, request)
}

// Stuck implements eval.Runs.
func (r evalRuns) Stuck(run string) bool {
	reason := r.waiting(run).GetReason()
	return reason == turn.WaitVersion || reason == turn.WaitFault
}

// bodies is the blob store as evals need it.
type bodies struct{ store blob.Store }

// Put implements eval.Blobs.
func (b bodies) Put(ctx context.Context, project string, r io.Reader, mediaType string) (*contentv1.BlobRef, error) {
	ref, err := b.store.Put(ctx, project, r, mediaType)
	if err != nil {
		return nil, err
	}
	return &contentv1.BlobRef{Hash: ref.Hash, Size: ref.Size, MediaType: ref.MediaType}, nil
}

// Open implements eval.Blobs.
func (b bodies) Open(ctx context.Context, project, hash string) (io.ReadCloser, error) {
	body, _, err := b.store.Get(ctx, project, hash, 0, 0)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, rpcerr.ResourceNotFound("projects/" + project + "/blobs/" + hash)
	}
	return body, err
}
