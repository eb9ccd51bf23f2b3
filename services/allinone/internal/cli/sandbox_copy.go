package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
)

// download copies a file out of a sandbox. It is complete at its place, or not there.
func (s *session) download(ctx context.Context, sandbox, from, to string) error {
	stream, err := s.sandboxes.DownloadFile(ctx, &sandboxv1.DownloadFileRequest{Sandbox: sandbox, Path: from})
	if err != nil {
		return err
	}
	if to == "-" {
		return receive(stream, s.app.Stdout)
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		to = filepath.Join(to, path.Base(from))
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".evalfleet-*")
	if err != nil {
		return err
	}
	err = errors.Join(receive(stream, f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func receive(stream sandboxv1.SandboxService_DownloadFileClient, to io.Writer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(r.GetChunk()); err != nil {
			return err
		}
	}
}

// uploadFile copies a file into a sandbox.
func (s *session) uploadFile(ctx context.Context, from, sandbox, to string) error {
	var in io.Reader
	mode := os.FileMode(0o644)
	if from == "-" {
		in = s.app.input(ctx)
	} else {
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			return usage("%s is a folder; pack it first: tar c %s | evalfleet sandbox exec -i SANDBOX -- tar x", from, from)
		}
		f, info, err := regularfile.Open(from)
		if err != nil {
			return usageError{err}
		}
		defer f.Close()
		in, mode = regularfile.ReaderPastCache(ctx, f), info.Mode().Perm()
		if to == "" {
			to = filepath.Base(from)
		}
	}
	if to == "" {
		return usage("name a path in the sandbox")
	}
	stream, err := s.sandboxes.UploadFile(ctx)
	if err != nil {
		return err
	}
	err = stream.Send(&sandboxv1.UploadFileRequest{Sandbox: sandbox, Path: to, Mode: uint32(mode)})
	for chunk := make([]byte, chunkBytes); err == nil; {
		n, readErr := io.ReadFull(in, chunk)
		if n > 0 {
			err = stream.Send(&sandboxv1.UploadFileRequest{Chunk: chunk[:n]})
		}
		if readErr != nil {
			if !errors.Is(readErr, io.EOF) && !errors.Is(readErr, io.ErrUnexpectedEOF) {
				return readErr
			}
			break
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err = stream.CloseAndRecv() // Where the server ended the stream, this returns why.
	return err
}
