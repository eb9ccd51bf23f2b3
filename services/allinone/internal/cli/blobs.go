package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"

	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/taskfile"
)

const (
	// smallBlob is what PutBlob takes in one message.
	smallBlob = 3 << 20
	// chunkBytes is what one message of a stream carries.
	chunkBytes = 1 << 20
)

// upload puts the bodies of a task where the server finds them, except those that it has. One that is damaged there is
// put again.
func (s *session) upload(ctx context.Context, bodies []taskfile.Body) error {
	for _, b := range bodies {
		_, err := s.blobs.GetBlob(ctx, &blobv1.GetBlobRequest{Parent: s.app.parent(), Hash: b.Ref.GetHash(), Limit: 1})
		if err == nil {
			continue
		}
		if code := rpcerr.Code(err); code != codes.NotFound && code != codes.DataLoss {
			return fmt.Errorf("look for %s at the server: %w", b.Path, err)
		}
		ref, err := s.put(ctx, b)
		if err != nil {
			return fmt.Errorf("upload %s: %w", b.Path, err)
		}
		if ref.GetHash() != b.Ref.GetHash() {
			return fmt.Errorf("%s changed while it was read; run the command again", b.Path)
		}
	}
	return nil
}

func (s *session) put(ctx context.Context, b taskfile.Body) (*contentv1.BlobRef, error) {
	f, _, err := regularfile.Open(b.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := regularfile.ReaderPastCache(ctx, f)
	if b.Ref.GetSize() <= smallBlob {
		content, err := io.ReadAll(io.LimitReader(in, smallBlob))
		if err != nil {
			return nil, err
		}
		return s.blobs.PutBlob(ctx, &blobv1.PutBlobRequest{Parent: s.app.parent(), Content: content, MediaType: b.Ref.GetMediaType()})
	}
	stream, err := s.blobs.UploadBlob(ctx)
	if err != nil {
		return nil, err
	}
	req := &blobv1.UploadBlobRequest{Parent: s.app.parent(), MediaType: b.Ref.GetMediaType()}
	for err == nil {
		if err = stream.Send(req); err != nil {
			break // The server has ended the stream; CloseAndRecv returns why.
		}
		chunk := make([]byte, chunkBytes)
		var n int
		n, err = io.ReadFull(in, chunk)
		if n > 0 && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
			err = nil
		}
		req = &blobv1.UploadBlobRequest{Chunk: chunk[:n]}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream.CloseAndRecv()
}
