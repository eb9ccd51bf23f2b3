package guest

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/file"
)

// place gives the folder and rights of a file operation for the user of that name.
func (g *guest) place(user string) (file.Place, error) {
	workdir, who, err := g.runner.Place(user)
	return file.Place{Workdir: workdir, User: who}, err
}

// ReadFile sends a part of a file.
func (g *guest) ReadFile(req *guestv1.ReadFileRequest, stream grpc.ServerStreamingServer[guestv1.ReadFileResponse]) error {
	p, err := g.place(req.GetUser())
	if err != nil {
		return err
	}
	r, err := p.Open(req.GetPath(), req.GetOffset(), req.GetLimit(), req.GetMaxBytes())
	if err != nil {
		return err
	}
	defer r.Close()
	buf := make([]byte, chunk)
	resp := &guestv1.ReadFileResponse{Info: r.Info}
	for {
		n, err := io.ReadFull(r, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if n > 0 || resp.Info != nil {
			resp.Chunk = buf[:n]
			if sendErr := stream.Send(resp); sendErr != nil {
				return sendErr
			}
			resp = &guestv1.ReadFileResponse{}
		}
		if err != nil {
			return nil
		}
	}
}

// WriteFile replaces a file when the stream ends well.
func (g *guest) WriteFile(stream grpc.ClientStreamingServer[guestv1.WriteFileRequest, guestv1.WriteFileResponse]) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	p, err := g.place(req.GetUser())
	if err != nil {
		return err
	}
	w, err := p.Create(req.GetPath(), req.GetMode())
	if err != nil {
		return err
	}
	for {
		if _, err := w.Write(req.GetChunk()); err != nil {
			w.Abort()
			return err
		}
		req, err = stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			w.Abort()
			return err
		}
	}
	info, err := w.Commit()
	if err != nil {
		return err
	}
	return stream.SendAndClose(&guestv1.WriteFileResponse{Info: info})
}

// ListFiles lists a folder.
func (g *guest) ListFiles(_ context.Context, req *guestv1.ListFilesRequest) (*guestv1.ListFilesResponse, error) {
	p, err := g.place(req.GetUser())
	if err != nil {
		return nil, err
	}
	files, truncated, err := p.List(req.GetPath(), int(req.GetMaxDepth()))
	if err != nil {
		return nil, err
	}
	return &guestv1.ListFilesResponse{Files: files, Truncated: truncated}, nil
}

// RemoveFile removes a file or a folder.
func (g *guest) RemoveFile(_ context.Context, req *guestv1.RemoveFileRequest) (*guestv1.RemoveFileResponse, error) {
	p, err := g.place(req.GetUser())
	if err != nil {
		return nil, err
	}
	if err := p.Remove(req.GetPath(), req.GetRecursive()); err != nil {
		return nil, err
	}
	return &guestv1.RemoveFileResponse{}, nil
}
