// Package blobserver is BlobService over a store: bodies of a project by their content, whole, by range and as streams.
package blobserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/blob"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

const (
	// maxWhole bounds a body, or a part of one, that is one message.
	maxWhole = 3 << 20
	// maxChunk bounds one message of a stream.
	maxChunk = 1 << 20
)

// Server is BlobService. It is safe for concurrent use.
type Server struct {
	blobv1.UnimplementedBlobServiceServer
	store blob.Store
}

// New serves the bodies of store.
func New(store blob.Store) *Server { return &Server{store: store} }

// Register offers the service at a server.
func (s *Server) Register(registrar grpc.ServiceRegistrar) {
	blobv1.RegisterBlobServiceServer(registrar, s)
}

// PutBlob keeps a body that is one message.
func (s *Server) PutBlob(ctx context.Context, req *blobv1.PutBlobRequest) (*contentv1.BlobRef, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	if len(req.GetContent()) > maxWhole {
		return nil, tooLarge("content", maxWhole, "send more with UploadBlob")
	}
	ref, err := s.store.Put(ctx, project, bytes.NewReader(req.GetContent()), req.GetMediaType())
	return proto(ref), fault(err, "")
}

// UploadBlob stores a body that arrives in chunks.
func (s *Server) UploadBlob(stream blobv1.BlobService_UploadBlobServer) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return rpcerr.InvalidField("parent", "the stream is empty; name a project in its first message")
	}
	if err != nil {
		return err
	}
	project, err := resource.ParseProject("parent", first.GetParent())
	if err != nil {
		return err
	}
	body := io.Reader(&chunks{stream: stream, rest: first.GetChunk(), fault: oversized(first.GetChunk())})
	if want := first.GetHash(); want != "" {
		body = &promised{Reader: body, want: want, is: sha256.New()}
	}
	ref, err := s.store.Put(stream.Context(), project, body, first.GetMediaType())
	if err != nil {
		return fault(err, "")
	}
	return stream.SendAndClose(proto(ref))
}

// chunks reads the body of an upload.
type chunks struct {
	stream blobv1.BlobService_UploadBlobServer
	rest   []byte
	fault  error
}

func (c *chunks) Read(b []byte) (int, error) {
	for len(c.rest) == 0 && c.fault == nil {
		req, err := c.stream.Recv()
		switch {
		case err != nil:
			c.fault = err
		case req.GetParent() != "" || req.GetMediaType() != "" || req.GetHash() != "":
			c.fault = rpcerr.InvalidRequest("parent, media_type and hash belong into the first message alone")
		default:
			c.rest, c.fault = req.GetChunk(), oversized(req.GetChunk())
		}
	}
	if c.fault != nil {
		return 0, c.fault
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// promised reads a body that must have a hash. A body with another hash ends with an error, so that it is not stored.
type promised struct {
	io.Reader

	want string
	is   hash.Hash
}

func (p *promised) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.is.Write(b[:n])
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if got := hex.EncodeToString(p.is.Sum(nil)); got != p.want {
		return n, rpcerr.InvalidField("hash", "is %s, and what came has %s; send the body again", p.want, got)
	}
	return n, err
}

func oversized(chunk []byte) error {
	if len(chunk) > maxChunk {
		return tooLarge("chunk", maxChunk, "send more of them")
	}
	return nil
}

// GetBlob gives a range of a body.
func (s *Server) GetBlob(ctx context.Context, req *blobv1.GetBlobRequest) (*blobv1.GetBlobResponse, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	limit := req.GetLimit()
	if limit == 0 || limit > maxWhole {
		limit = maxWhole
	}
	body, ref, err := s.store.Get(ctx, project, req.GetHash(), req.GetOffset(), limit)
	if err != nil {
		return nil, fault(err, req.GetHash())
	}
	content, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, fault(err, req.GetHash())
	}
	return &blobv1.GetBlobResponse{Content: content, Blob: proto(ref)}, nil
}

// DownloadBlob streams a body.
func (s *Server) DownloadBlob(req *blobv1.DownloadBlobRequest, stream blobv1.BlobService_DownloadBlobServer) (err error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return err
	}
	body, ref, err := s.store.Get(stream.Context(), project, req.GetHash(), req.GetOffset(), 0)
	if err != nil {
		return fault(err, req.GetHash())
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	chunk := make([]byte, maxChunk)
	resp := &blobv1.DownloadBlobResponse{Blob: proto(ref)}
	for {
		n, err := io.ReadFull(body, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fault(err, req.GetHash())
		}
		if resp.Chunk = chunk[:n]; n > 0 || resp.GetBlob() != nil {
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
		resp = &blobv1.DownloadBlobResponse{}
	}
}

func proto(r blob.Ref) *contentv1.BlobRef {
	return &contentv1.BlobRef{Hash: r.Hash, Size: r.Size, MediaType: r.MediaType}
}

func tooLarge(field string, limit int, next string) error {
	return rpcerr.RequestTooLarge(field, limit, "%s is over %d bytes; %s", field, limit, next)
}

// fault gives a store's error its kind.
func fault(err error, hash string) error {
	if large, ok := errors.AsType[*blob.TooLargeError](err); ok {
		return rpcerr.BodyTooLarge(large.LimitBytes, "the body is over the %d bytes that this server keeps of one", large.LimitBytes)
	}
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return rpcerr.NotFound(hash, "no body %s in this project; upload it first", hash)
	case errors.Is(err, blob.ErrRange):
		return rpcerr.InvalidField("offset", "outside of the body")
	case errors.Is(err, blob.ErrInvalid):
		return rpcerr.InvalidRequest("%v", err)
	}
	return err
}
