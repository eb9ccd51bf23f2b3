package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"

	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/filebody"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

// maxDownload bounds a download that names no bound.
const maxDownload = 100 << 20

// useFile is use for a request that names its user itself, and not in a specification.
func (s *Server) useFile(ctx context.Context, name string, f func(*client.Client) error) error {
	return rpcerr.Moved("spec.user", "user", s.use(ctx, name, f))
}

// ReadFile reads a file, or a part of it, in one answer.
func (s *Server) ReadFile(ctx context.Context, req *sandboxv1.ReadFileRequest) (*sandboxv1.ReadFileResponse, error) {
	read := &guestv1.ReadFileRequest{Path: req.GetPath(), Offset: req.GetOffset(), User: req.GetUser()}
	if req.GetOffset() == 0 && req.GetLimit() == 0 {
		read.MaxBytes = maxInput
	} else {
		read.Limit = maxInput
		if l := req.GetLimit(); l > 0 {
			read.Limit = min(l, maxInput)
		}
	}
	resp := &sandboxv1.ReadFileResponse{}
	err := s.useFile(ctx, req.GetSandbox(), func(c *client.Client) error {
		return c.Again(ctx, func(api guestv1.GuestServiceClient) error {
			resp.Reset()
			return download(ctx, api, read, func(piece *guestv1.ReadFileResponse) error {
				resp.Content = append(resp.Content, piece.GetChunk()...)
				if piece.GetInfo() != nil {
					resp.Info = piece.GetInfo()
				}
				return nil
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// WriteFile replaces a file by the request's content.
func (s *Server) WriteFile(ctx context.Context, req *sandboxv1.WriteFileRequest) (*sandboxv1.WriteFileResponse, error) {
	body := filebody.Bytes(req)
	if len(body) > maxInput {
		return nil, tooLarge("content", maxInput)
	}
	resp := &sandboxv1.WriteFileResponse{}
	err := s.useFile(ctx, req.GetSandbox(), func(c *client.Client) error {
		return c.Again(ctx, func(api guestv1.GuestServiceClient) (err error) {
			left := body
			resp.Info, err = client.Upload(ctx, api, &guestv1.WriteFileRequest{Path: req.GetPath(), Mode: req.GetMode(), User: req.GetUser()}, func() ([]byte, error) {
				if len(left) == 0 {
					return nil, io.EOF
				}
				piece := left[:min(len(left), client.Chunk)]
				left = left[len(piece):]
				return piece, nil
			})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// DownloadFile streams a file.
func (s *Server) DownloadFile(req *sandboxv1.DownloadFileRequest, stream grpc.ServerStreamingServer[sandboxv1.DownloadFileResponse]) error {
	read := &guestv1.ReadFileRequest{Path: req.GetPath(), Offset: req.GetOffset(), MaxBytes: req.GetMaxBytes(), User: req.GetUser()}
	if read.MaxBytes <= 0 {
		read.MaxBytes = maxDownload
	}
	ctx := stream.Context()
	return s.useFile(ctx, req.GetSandbox(), func(c *client.Client) error {
		return c.Once(ctx, func(api guestv1.GuestServiceClient) error {
			return download(ctx, api, read, func(piece *guestv1.ReadFileResponse) error {
				if stream.Send(&sandboxv1.DownloadFileResponse{Chunk: piece.GetChunk(), Info: piece.GetInfo()}) != nil {
					return context.Canceled // the caller is gone; this says nothing of the guest
				}
				return nil
			})
		})
	})
}

// download reads a file from the guest, piece by piece.
func download(ctx context.Context, api guestv1.GuestServiceClient, read *guestv1.ReadFileRequest, take func(*guestv1.ReadFileResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.ReadFile(ctx, read)
	if err != nil {
		return err
	}
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := take(piece); err != nil {
			return err
		}
	}
}

// UploadFile streams a file in.
func (s *Server) UploadFile(stream grpc.ClientStreamingServer[sandboxv1.UploadFileRequest, sandboxv1.UploadFileResponse]) error {
	first, err := stream.Recv()
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case first.GetSandbox() == "":
		return rpcerr.InvalidField("sandbox", "is missing; the first message names the sandbox")
	case first.GetPath() == "":
		return rpcerr.InvalidField("path", "is missing; the first message names the file")
	case len(first.GetChunk()) > client.Chunk:
		return tooLarge("chunk", client.Chunk)
	}
	ctx := stream.Context()
	resp := &sandboxv1.UploadFileResponse{}
	err = s.useFile(ctx, first.GetSandbox(), func(c *client.Client) error {
		return c.Once(ctx, func(api guestv1.GuestServiceClient) (err error) {
			to := &guestv1.WriteFileRequest{Path: first.GetPath(), Mode: first.GetMode(), User: first.GetUser(), Chunk: first.GetChunk()}
			resp.Info, err = client.Upload(ctx, api, to, func() ([]byte, error) {
				req, err := stream.Recv()
				switch {
				case errors.Is(err, io.EOF):
					return nil, io.EOF
				case err != nil:
					return nil, context.Canceled // the caller is gone; this says nothing of the guest
				case req.GetSandbox() != "" || req.GetPath() != "":
					return nil, rpcerr.InvalidRequest("sandbox and path belong into the first message alone")
				case len(req.GetChunk()) > client.Chunk:
					return nil, tooLarge("chunk", client.Chunk)
				}
				return req.GetChunk(), nil
			})
			return err
		})
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}

// ListFiles lists a folder by path.
func (s *Server) ListFiles(ctx context.Context, req *sandboxv1.ListFilesRequest) (*sandboxv1.ListFilesResponse, error) {
	page, err := resource.PageOf(req)
	if err != nil {
		return nil, err
	}
	var listed *guestv1.ListFilesResponse
	err = s.useFile(ctx, req.GetSandbox(), func(c *client.Client) error {
		return c.Again(ctx, func(api guestv1.GuestServiceClient) (err error) {
			listed, err = api.ListFiles(ctx, &guestv1.ListFilesRequest{Path: req.GetPath(), MaxDepth: req.GetMaxDepth(), User: req.GetUser()})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	files := listed.GetFiles()
	slices.SortFunc(files, func(a, b *sandboxv1.FileInfo) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	start, found := slices.BinarySearchFunc(files, page.After, func(f *sandboxv1.FileInfo, at string) int { return strings.Compare(f.GetPath(), at) })
	if found {
		start++
	}
	end := start + page.Size
	if end < len(files) {
		return &sandboxv1.ListFilesResponse{Files: files[start:end], NextPageToken: page.Token(files[end-1].GetPath())}, nil
	}
	if listed.GetTruncated() {
		return nil, rpcerr.FolderTooLarge(req.GetPath(), len(files), "%s holds more than %d entries; list a folder below it, or less deep", req.GetPath(), len(files))
	}
	return &sandboxv1.ListFilesResponse{Files: files[start:]}, nil
}

// RemoveFile removes a file, or a folder with all in it when told so.
func (s *Server) RemoveFile(ctx context.Context, req *sandboxv1.RemoveFileRequest) (*sandboxv1.RemoveFileResponse, error) {
	err := s.useFile(ctx, req.GetSandbox(), func(c *client.Client) error {
		return c.Once(ctx, func(api guestv1.GuestServiceClient) error {
			_, err := api.RemoveFile(ctx, &guestv1.RemoveFileRequest{Path: req.GetPath(), Recursive: req.GetRecursive(), User: req.GetUser()})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return &sandboxv1.RemoveFileResponse{}, nil
}
