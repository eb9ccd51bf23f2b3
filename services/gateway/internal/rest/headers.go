package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Headers that set fields of the request.
const (
	// keyHeader is a request's key; it becomes the field `request_id`.
	keyHeader = "Idempotency-Key"
	// etagHeader is the expected state of the resource that an update changes (RFC 9110, section 13.1.1); it becomes
	// the field `etag`.
	etagHeader = "If-Match"
)

// header returns the name under which a header reaches the services, and whether it does.
func header(name string) (string, bool) {
	switch http.CanonicalHeaderKey(name) {
	case "X-Request-Id", "Traceparent", "Tracestate", keyHeader, etagHeader:
		return strings.ToLower(name), true
	case "Authorization":
		return "", false // The mapping forwards it by itself, under its own name.
	}
	return "", false
}

// setHeaders sets the fields of a request from the headers of its call. A header without a matching field is rejected,
// because its sender relies on it.
func setHeaders(ctx context.Context, request proto.Message) error {
	sent, _ := metadata.FromOutgoingContext(ctx)
	if keys := sent.Get(keyHeader); len(keys) > 0 {
		if len(keys) > 1 {
			return rpcerr.InvalidField(keyHeader, "is sent %d times; a request has one key", len(keys))
		}
		in, f := keyOf(request.ProtoReflect())
		switch {
		case f == nil:
			return rpcerr.InvalidField(keyHeader, "this call takes no key: repeating it does no more than doing it once, or it cannot be told from a new one; leave the header out")
		case required(f):
			return rpcerr.InvalidField(keyHeader, "this call has no key of its own: its requestId names the call that it is about; leave the header out")
		}
		if err := set(keyHeader, in, f, keys[0]); err != nil {
			return err
		}
	}
	if tags := sent.Get(etagHeader); len(tags) > 0 {
		in, f := etagOf(request.ProtoReflect())
		if f == nil {
			return rpcerr.InvalidField(etagHeader, "this call looks at no etag; leave the header out")
		}
		tag, err := etag(tags)
		if err != nil || tag == "" {
			return err
		}
		return set(etagHeader, in, f, tag)
	}
	return nil
}

// set sets a field to a header's value; it fails if the request has another value there.
func set(header string, in protoreflect.Message, f protoreflect.FieldDescriptor, value string) error {
	if said := in.Get(f).String(); said != "" && said != value {
		return rpcerr.InvalidField(header, "is %q, and %s is %q; send one of them", value, f.Name(), said)
	}
	in.Set(f, protoreflect.ValueOfString(value))
	return nil
}

// keyOf finds the field of a request's key: its own, or that of the nested request.
func keyOf(m protoreflect.Message) (protoreflect.Message, protoreflect.FieldDescriptor) {
	fields := m.Descriptor().Fields()
	if f := fields.ByName("request_id"); f != nil {
		return m, f
	}
	if f := fields.ByName("request"); f != nil && f.Message() != nil {
		return keyOf(m.Mutable(f).Message())
	}
	return nil, nil
}

// etagOf finds the field of an update's etag: its own, or that of the nested resource.
func etagOf(m protoreflect.Message) (protoreflect.Message, protoreflect.FieldDescriptor) {
	fields := m.Descriptor().Fields()
	if fields.ByName("update_mask") == nil {
		return nil, nil
	}
	if f := fields.ByName("etag"); f != nil {
		return m, f
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() == nil || f.IsList() || f.IsMap() {
			continue
		}
		if tag := f.Message().Fields().ByName("etag"); tag != nil {
			return m.Mutable(f).Message(), tag
		}
	}
	return nil, nil
}

// etag parses If-Match. It returns "" for `*`, which matches every state.
func etag(values []string) (string, error) {
	value := strings.TrimSpace(strings.Join(values, ","))
	if value == "*" {
		return "", nil
	}
	tag := strings.TrimPrefix(value, "W/")
	if unquoted, ok := strings.CutPrefix(tag, `"`); ok {
		tag, ok = strings.CutSuffix(unquoted, `"`)
		if !ok {
			tag = `"`
		}
	}
	if tag == "" || strings.ContainsAny(tag, `",`) {
		return "", rpcerr.InvalidField(etagHeader, "%s is not one etag; write it as the resource has it", value)
	}
	return tag, nil
}

// required reports whether a field is required.
func required(f protoreflect.FieldDescriptor) bool {
	behaviors, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return slices.Contains(behaviors, annotations.FieldBehavior_REQUIRED)
}

// showEtag sets the ETag header of an answer to the etag of its resource.
func showEtag(_ context.Context, w http.ResponseWriter, answer proto.Message) error {
	if answer == nil { // A stream begins.
		return nil
	}
	m := answer.ProtoReflect()
	if f := m.Descriptor().Fields().ByName("etag"); f != nil && f.Kind() == protoreflect.StringKind && m.Get(f).String() != "" {
		w.Header().Set("ETag", `"`+m.Get(f).String()+`"`)
	}
	return nil
}
