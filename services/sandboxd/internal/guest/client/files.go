package client

import (
	"context"
	"errors"
	"io"

	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// Chunk bounds one piece of a file on its way.
const Chunk = 1 << 20

// WriteFile replaces a file by content, for the sandbox's own user.
func (c *Client) WriteFile(ctx context.Context, path string, mode uint32, content []byte) error {
	return c.Again(ctx, func(api guestv1.GuestServiceClient) error {
		left := content
		_, err := Upload(ctx, api, &guestv1.WriteFileRequest{Path: path, Mode: mode}, func() ([]byte, error) {
			if len(left) == 0 {
				return nil, io.EOF
			}
			piece := left[:min(len(left), Chunk)]
			left = left[len(piece):]
			return piece, nil
		})
		return err
	})
}

// Upload replaces the file that target names by the pieces that next gives until io.EOF. Any other error of next leaves
// the old file.
func Upload(ctx context.Context, api guestv1.GuestServiceClient, target *guestv1.WriteFileRequest, next func() ([]byte, error)) (*sandboxv1.FileInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.WriteFile(ctx)
	if err != nil {
		return nil, err
	}
	for err = stream.Send(target); err == nil; {
		piece, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err // the cancelled stream tells the guest to drop what came
		}
		if stream.Send(&guestv1.WriteFileRequest{Chunk: piece}) != nil {
			break // CloseAndRecv tells why
		}
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetInfo(), err
}
