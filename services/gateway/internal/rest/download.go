package rest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/blob"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// jsonType is the media type of messages.
const jsonType = "application/json"

// download is a call that streams a file in chunks. Over REST its answer is the file.
type download struct {
	service, method string
	request         func() proto.Message
	chunk           func() chunk
}

// chunk is a piece of a file.
type chunk interface {
	proto.Message
	GetChunk() []byte
}

// downloads are the calls that stream a file, by route.
func downloads() map[route]download {
	return map[route]download{
		"GET /api/v1/{parent=projects/*}/blobs/{hash=*}:download": {
			blobv1.BlobService_ServiceDesc.ServiceName, blobv1.BlobService_DownloadBlob_FullMethodName,
			func() proto.Message { return &blobv1.DownloadBlobRequest{} }, func() chunk { return &blobv1.DownloadBlobResponse{} },
		},
		"GET /api/v1/{sandbox=projects/*/sandboxes/*}:downloadFile": {
			sandboxv1.SandboxService_ServiceDesc.ServiceName, sandboxv1.SandboxService_DownloadFile_FullMethodName,
			func() proto.Message { return &sandboxv1.DownloadFileRequest{} }, func() chunk { return &sandboxv1.DownloadFileResponse{} },
		},
		"GET /api/v1/{name=projects/*/evals/*}:export": {
			agentv1.EvalService_ServiceDesc.ServiceName, agentv1.EvalService_ExportEval_FullMethodName,
			func() proto.Message { return &agentv1.ExportEvalRequest{} }, func() chunk { return &agentv1.ExportEvalResponse{} },
		},
	}
}

// file is the description of a file in its first chunk.
type file struct {
	name, mediaType string
	// size is the size of the whole file in bytes; 0 if it is not known before the end.
	size int64
	// etag identifies the content; changed is the time of the last change. Each may be zero.
	etag    string
	changed time.Time
}

func describe(first chunk) file {
	switch first := first.(type) {
	case *blobv1.DownloadBlobResponse:
		ref := first.GetBlob()
		return file{name: ref.GetHash(), mediaType: ref.GetMediaType(), size: ref.GetSize(), etag: ref.GetHash()}
	case *sandboxv1.DownloadFileResponse: // The size is 0 for files that the kernel generates.
		info := first.GetInfo()
		return file{name: path.Base(info.GetPath()), size: info.GetSize(), changed: info.GetModifyTime().AsTime()}
	case *agentv1.ExportEvalResponse:
		return file{name: first.GetFileName(), mediaType: mime.TypeByExtension(path.Ext(first.GetFileName()))}
	}
	return file{}
}

// plain answers downloads with the file, unless the client accepts JSON or events: then with the chunks.
func plain(conns map[string]grpc.ClientConnInterface, handle func(method string, h fileHandler) runtime.HandlerFunc) runtime.Middleware {
	all := downloads()
	return func(next runtime.HandlerFunc) runtime.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request, pathParams map[string]string) {
			pattern, _ := runtime.HTTPPattern(r.Context())
			d, ok := all[route(r.Method+" "+pattern.String())]
			if !ok || accepts(r, jsonType) || accepts(r, eventStream) {
				next(w, r, pathParams)
				return
			}
			handle(d.method, d.over(conns[d.service]))(w, r, pathParams)
		}
	}
}

// accepts reports whether the client's Accept header lists a media type.
func accepts(r *http.Request, mediaType string) bool {
	for _, header := range r.Header.Values("Accept") {
		for accepted := range strings.SplitSeq(header, ",") {
			if name, _, err := mime.ParseMediaType(accepted); err == nil && name == mediaType {
				return true
			}
		}
	}
	return false
}

// over returns the handler of a download.
func (d download) over(conn grpc.ClientConnInterface) fileHandler {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, pathParams map[string]string) error {
		if strings.Contains(r.Header.Get("Range"), ",") { // Each range would be one call: send the whole.
			r.Header.Del("Range")
		}
		request := d.request()
		if err := fill(request, r.URL.Query(), pathParams); err != nil {
			return err
		}
		c := newContent(request, func() (grpc.ClientStream, context.CancelFunc, error) {
			ctx, stop := context.WithCancel(ctx)
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, d.method)
			if err == nil {
				err = stream.SendMsg(request)
			}
			if err == nil {
				err = stream.CloseSend()
			}
			return stream, stop, err
		}, d.chunk())
		defer func() { c.stop() }()
		if err := c.more(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		f := describe(c.chunk)
		h := w.Header()
		h.Set("Content-Type", cmp.Or(f.mediaType, blob.DefaultMediaType))
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.name}))
		if c.first == 0 && f.etag != "" {
			h.Set("ETag", `"`+f.etag+`"`)
		}
		if c.size = f.size - c.first; c.first == 0 && c.size > 0 {
			http.ServeContent(w, r, "", f.changed, c) // An answer that ends early is shorter than its Content-Length.
			return nil
		}
		if c.size > 0 {
			h.Set("Content-Length", strconv.FormatInt(c.size, 10))
		}
		if _, err := io.Copy(w, c); err != nil {
			panic(http.ErrAbortHandler) // The client sees that the answer is incomplete.
		}
		return nil
	}
}

// content reads the file of a download, and can seek in it. It is not safe for concurrent use.
type content struct {
	request proto.Message
	// open starts the call with the request as it is now.
	open func() (grpc.ClientStream, context.CancelFunc, error)
	// offset is the request's field for the offset to begin at; nil if there is none. first is the client's value of
	// it.
	offset protoreflect.FieldDescriptor
	first  int64

	size int64
	// at is the position of rest, the unread part of the chunk; next is the position of the next read.
	at, next int64
	stream   grpc.ClientStream
	stop     context.CancelFunc
	chunk    chunk
	rest     []byte
}

func newContent(request proto.Message, open func() (grpc.ClientStream, context.CancelFunc, error), empty chunk) *content {
	c := &content{request: request, open: open, chunk: empty, stop: func() {}}
	if c.offset = request.ProtoReflect().Descriptor().Fields().ByName("offset"); c.offset != nil {
		c.first = request.ProtoReflect().Get(c.offset).Int()
	}
	return c
}

// more receives the next chunk.
func (c *content) more() error {
	if c.stream == nil {
		if c.offset != nil {
			c.request.ProtoReflect().Set(c.offset, protoreflect.ValueOfInt64(c.first+c.next))
		}
		stream, stop, err := c.open()
		c.stop = stop
		if err != nil {
			return err
		}
		c.stream, c.at = stream, c.next
	}
	err := c.stream.RecvMsg(c.chunk)
	if err == nil {
		c.rest = c.chunk.GetChunk()
	}
	return err
}

// Read implements [io.Reader].
func (c *content) Read(b []byte) (int, error) {
	if c.next != c.at {
		c.stop()
		c.stream, c.rest = nil, nil
	}
	for len(c.rest) == 0 {
		if err := c.more(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	c.at += int64(n)
	c.next = c.at
	return n, nil
}

// Seek implements [io.Seeker].
func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.next
	case io.SeekEnd:
		offset += c.size
	}
	c.next = offset
	return offset, nil
}
