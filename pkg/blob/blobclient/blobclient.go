// Package blobclient reaches a blob store over BlobService, for programs that have none of their own.
package blobclient

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/blob"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// chunkBytes is the size of one message of an upload.
const chunkBytes = 1 << 20

// Store puts and gets bodies by calls. It is safe for concurrent use.
type Store struct {
	// Client makes the calls. It is set before the first use, possibly after the store has been handed on: the client
	// may use a connection that offloads messages to this store.
	Client blobv1.BlobServiceClient
}

// Put keeps a body, as [blob.Store] does.
func (s *Store) Put(ctx context.Context, project string, body io.Reader, mediaType string) (blob.Ref, error) {
	stream, err := s.Client.UploadBlob(ctx)
	if err != nil {
		return blob.Ref{}, err
	}
	chunk := make([]byte, chunkBytes)
	request := &blobv1.UploadBlobRequest{Parent: resource.Project(project), MediaType: mediaType}
	for err == nil {
		if err = stream.Send(request); err != nil {
			break // The server has ended the stream; CloseAndRecv returns why.
		}
		var n int
		if n, err = io.ReadFull(body, chunk); n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		request = &blobv1.UploadBlobRequest{Chunk: chunk[:n]}
	}
	if !errors.Is(err, io.EOF) {
		return blob.Ref{}, err
	}
	ref, err := stream.CloseAndRecv()
	return read(ref), err
}

// Get returns the bytes of a body, as [blob.Store] does. The caller closes the reader.
func (s *Store) Get(ctx context.Context, project, hash string, offset, limit int64) (io.ReadCloser, blob.Ref, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := s.Client.DownloadBlob(ctx, &blobv1.DownloadBlobRequest{Parent: resource.Project(project), Hash: hash, Offset: offset})
	var first *blobv1.DownloadBlobResponse
	if err == nil {
		first, err = stream.Recv()
	}
	if err != nil {
		cancel()
		if rpcerr.Code(err) == codes.NotFound {
			err = blob.ErrNotFound
		}
		return nil, blob.Ref{}, err
	}
	body := &download{stream: stream, rest: first.GetChunk(), cancel: cancel}
	if limit > 0 {
		return limited{io.LimitReader(body, limit), body}, read(first.GetBlob()), nil
	}
	return body, read(first.GetBlob()), nil
}

func read(ref *contentv1.BlobRef) blob.Ref {
	return blob.Ref{Hash: ref.GetHash(), Size: ref.GetSize(), MediaType: ref.GetMediaType()}
}

// download reads the content of a stream.
type download struct {
	stream blobv1.BlobService_DownloadBlobClient
	rest   []byte
	cancel context.CancelFunc
}

func (d *download) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		answer, err := d.stream.Recv()
		if err != nil {
			return 0, err
		}
		d.rest = answer.GetChunk()
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *download) Close() error {
	d.cancel()
	return nil
}

type limited struct {
	io.Reader
	io.Closer
}
