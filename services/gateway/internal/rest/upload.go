package rest

import (
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// chunkBytes is the size of the chunks in which a body is forwarded.
const chunkBytes = 1 << 20

// upload is a call that takes a file in chunks. Over REST the body of the request is the file, and the query has the
// other fields of its first message. The mapping does not support such calls.
type upload struct {
	path            string
	service, method string
	request         func(chunk []byte) proto.Message
	answer          func() proto.Message
}

func uploads() []upload {
	return []upload{
		{
			"/api/v1/{parent=projects/*}/blobs:upload", blobv1.BlobService_ServiceDesc.ServiceName, blobv1.BlobService_UploadBlob_FullMethodName,
			func(chunk []byte) proto.Message { return &blobv1.UploadBlobRequest{Chunk: chunk} }, func() proto.Message { return &contentv1.BlobRef{} },
		},
		{
			"/api/v1/{sandbox=projects/*/sandboxes/*}:uploadFile", sandboxv1.SandboxService_ServiceDesc.ServiceName, sandboxv1.SandboxService_UploadFile_FullMethodName,
			func(chunk []byte) proto.Message { return &sandboxv1.UploadFileRequest{Chunk: chunk} }, func() proto.Message { return &sandboxv1.UploadFileResponse{} },
		},
	}
}

// over returns the handler of an upload. Unlike all other bodies, this one is not bounded here: the service bounds it.
func (u upload) over(conn grpc.ClientConnInterface, mux *runtime.ServeMux) fileHandler {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, pathParams map[string]string) error {
		sent := &sending{Reader: r.Body}
		if b, ok := r.Body.(*body); ok {
			sent.Reader = b.ReadCloser
		}
		answer, err := u.pass(ctx, conn, r, sent, pathParams)
		if err != nil {
			if sent.began || !strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
				_, _ = io.CopyN(io.Discard, sent, bound.DiscardedBytes) // Clients read the answer only after they have sent all.
			}
			return err
		}
		_, m := runtime.MarshalerForRequest(mux, r)
		runtime.ForwardResponseMessage(ctx, mux, m, w, r, answer)
		return nil
	}
}

// pass sends a body to the service and returns the service's answer.
func (u upload) pass(ctx context.Context, conn grpc.ClientConnInterface, r *http.Request, sent *sending, pathParams map[string]string) (proto.Message, error) {
	first := u.request(nil)
	if err := known(first, r, pathParams); err != nil {
		return nil, err
	}
	if err := fill(first, r.URL.Query(), pathParams); err != nil {
		return nil, err
	}
	mediaType, err := mediaTypeOf(r)
	if err != nil {
		return nil, err
	}
	if blob, ok := first.(*blobv1.UploadBlobRequest); ok && blob.GetMediaType() == "" {
		blob.MediaType = mediaType
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, u.method)
	if err != nil {
		return nil, err
	}
	err = stream.SendMsg(first)
	for piece := make([]byte, chunkBytes); err == nil; {
		n, readErr := sent.Read(piece)
		if n > 0 {
			err = stream.SendMsg(u.request(piece[:n]))
		}
		if errors.Is(readErr, io.EOF) {
			break
		}
		if readErr != nil {
			return nil, rpcerr.InvalidRequest("the body ended early: %v", readErr) // The end of ctx says so to the service.
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // If the service ended the call, its status has the reason.
		return nil, err
	}
	answer := u.answer()
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return answer, stream.RecvMsg(answer)
}

// known rejects query parameters that are no fields of the first message, or that are set elsewhere.
func known(first proto.Message, r *http.Request, pathParams map[string]string) error {
	d := first.ProtoReflect().Descriptor()
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		path := pathOf(d, name)
		if _, inPath := pathParams[path]; inPath || path == "" || path == "chunk" {
			return rpcerr.InvalidField(name, "unknown query parameter; %s", strings.Replace(offer(d, pathParams), ", chunk", "", 1))
		}
		if err := readParameter(name, query[name], fieldAt(d, path)); err != nil {
			return err
		}
	}
	return nil
}

// mediaTypeOf returns the media type of a body; empty if the client names none, as curl does.
func mediaTypeOf(r *http.Request) (string, error) {
	said := r.Header.Get("Content-Type")
	switch name, _, _ := mime.ParseMediaType(said); name {
	case "application/x-www-form-urlencoded":
		return "", nil
	case "multipart/form-data":
		return "", rpcerr.InvalidField("Content-Type", "is that of a form; send the bytes alone, such as with curl -T FILE")
	}
	return said, nil
}

// sending is a body that is being forwarded.
type sending struct {
	io.Reader

	// began reports that the client has been told to send the body.
	began bool
}

// Read implements [io.Reader]. It fills b, up to the end or an error.
func (s *sending) Read(b []byte) (n int, err error) {
	s.began = true
	for n < len(b) && err == nil {
		var read int
		read, err = s.Reader.Read(b[n:])
		n += read
	}
	return n, err
}
