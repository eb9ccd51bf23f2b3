package rest

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// messages is grpc-gateway's JSON with a faster path for whole messages, which most requests and answers are: a body is
// scanned once, where encoding/json would look for its end first, and an answer is not copied.
type messages struct{ runtime.JSONPb }

// Marshal encodes a message, or another value of the mapping. An error has one form, alone and at the end of a stream.
func (m *messages) Marshal(v any) ([]byte, error) {
	if end, ok := v.(map[string]proto.Message); ok {
		v = end["error"]
	}
	switch v := v.(type) {
	case *statuspb.Status:
		s := status.FromProto(v)
		return rpcerr.JSON(s, httpStatus(s)), nil
	case proto.Message:
		return m.MarshalOptions.Marshal(v)
	}
	return m.JSONPb.Marshal(v)
}

// NewDecoder decodes one value, which is the whole body: no call takes a stream over REST.
func (m *messages) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		text, err := io.ReadAll(r)
		if err != nil {
			return refuse(r, unread(err))
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return io.EOF
		}
		p, ok := v.(proto.Message)
		if !ok { // A field of the request, which ofAField has read before.
			return m.JSONPb.Unmarshal(text, v)
		}
		if _, err := m.read(text, p); err != nil {
			return refuse(r, err)
		}
		return nil
	})
}

// read reads a body into p, and returns it as the mapping takes it: with the full names of enums' values.
func (m *messages) read(text []byte, p proto.Message) ([]byte, error) {
	if !jsonscan.AtMost(text, bound.RequestValues) {
		return nil, rpcerr.InvalidRequest(
			"the body has more than %d JSON values; send what is large as a blob first and name it by its hash", bound.RequestValues)
	}
	err := m.UnmarshalOptions.Unmarshal(text, p)
	if err == nil {
		return text, nil
	}
	// Only what the plain reading refuses is looked at again.
	if full, ok := fullEnums(text, p.ProtoReflect().Descriptor()); ok {
		proto.Reset(p)
		if m.UnmarshalOptions.Unmarshal(full, p) == nil {
			return full, nil
		}
	}
	return nil, misfit(text, p, err)
}

// ofAField reads bodies that are a field of their request, such as `budget`, before the mapping does, which keeps
// nothing but the text of what is wrong with them, and sets what the path names over what the body says.
func (m *messages) ofAField(answer func(http.ResponseWriter, *http.Request, error)) runtime.Middleware {
	all := fieldBodies()
	return func(next runtime.HandlerFunc) runtime.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request, pathParams map[string]string) {
			pattern, _ := runtime.HTTPPattern(r.Context())
			field, ok := all[pattern.String()]
			if !ok {
				next(w, r, pathParams)
				return
			}
			text, err := io.ReadAll(r.Body)
			if err != nil {
				answer(w, r, unread(err))
				return
			}
			if len(bytes.TrimSpace(text)) > 0 {
				body := field.message.New()
				if text, err = m.read(text, body.Interface()); err == nil {
					err = renamed(body, field.field, pathParams)
				}
				if err != nil {
					answer(w, r, err)
					return
				}
			}
			r = r.Clone(r.Context())
			r.Body = io.NopCloser(bytes.NewReader(text))
			next(w, r, pathParams)
		}
	}
}

// renamed refuses a body that sets a field to another value than the path, which the mapping would silently ignore.
// Field is the field of the request that the body is.
func renamed(body protoreflect.Message, field string, pathParams map[string]string) error {
	for path, value := range pathParams {
		name, ok := strings.CutPrefix(path, field+".")
		f := body.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !ok || f == nil || f.Kind() != protoreflect.StringKind {
			continue
		}
		if own := body.Get(f).String(); own != "" && own != value {
			return rpcerr.InvalidField(f.JSONName(), "is %q, and the path names %q; leave it out here, or name the same", own, value)
		}
	}
	return nil
}
