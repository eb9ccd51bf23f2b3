package agentorch

import (
	"context"
	"errors"
	"io"

	"github.com/evalfleet/evalfleet/pkg/blob"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

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
		return nil, rpcerr.ResourceNotFound(resource.Format(project, "blobs", hash))
	}
	return body, err
}

// Size implements server.Bodies.
func (b bodies) Size(ctx context.Context, project, hash string) (int64, error) {
	ref, err := b.store.Stat(ctx, project, hash)
	if errors.Is(err, blob.ErrNotFound) {
		err = rpcerr.ResourceNotFound(resource.Format(project, "blobs", hash))
	}
	return ref.Size, err
}
