package rest

import (
	"context"
	"regexp"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// spelled is an error whose field names are spelled as the caller wrote them.
type spelled struct{ error }

// Unwrap returns the error itself.
func (s spelled) Unwrap() error { return s.error }

// fieldBody is a body that is one field of its request, such as `budget`.
type fieldBody struct {
	field   string
	message protoreflect.MessageType
}

// fieldBodies are the bodies that are a field, by the path of the route. A body that is the whole request is not among
// them.
func fieldBodies() map[string]fieldBody {
	all := map[string]fieldBody{}
	for name := range services() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			continue
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods() //nolint:forcetypeassert // The name is a service's.
		for i := range methods.Len() {
			rule, _ := proto.GetExtension(methods.Get(i).Options(), annotations.E_Http).(*annotations.HttpRule)
			if body := rule.GetBody(); body != "" && body != "*" {
				message, err := protoregistry.GlobalTypes.FindMessageByName(methods.Get(i).Input().Fields().ByName(protoreflect.Name(body)).Message().FullName())
				if err != nil {
					continue
				}
				for _, r := range append(rule.GetAdditionalBindings(), rule) {
					_, path, _ := strings.Cut(string(routeOf(r)), " ")
					all[path] = fieldBody{body, message}
				}
			}
		}
	}
	return all
}

// naming names the fields of errors as JSON does, seen from the body that the caller sent.
type naming map[string]fieldBody

// shared are fields of many requests, which messages name without a path.
var shared = regexp.MustCompile(`\b(request_id|page_token|page_size)\b`)

// of returns err with JSON field names. A service names fields as the schema does, relative to the request.
func (n naming) of(ctx context.Context, err error) error {
	e, ok := rpcerr.As(rpcerr.FromStatus(err))
	if !ok || len(e.Fields) == 0 && !shared.MatchString(e.Message) {
		return err
	}
	within := ""
	if pattern, ok := runtime.HTTPPattern(ctx); ok {
		within = n[pattern.String()].field
	}
	named := *e
	named.Fields = make([]rpcerr.Field, 0, len(e.Fields))
	for _, f := range e.Fields {
		path := jsonPath(f.Path)
		if rest, ok := strings.CutPrefix(path, within+"."); ok && within != "" {
			path = rest
		}
		if path != f.Path && f.Path != "" {
			named.Message = strings.ReplaceAll(named.Message, f.Path+": ", path+": ")
		}
		named.Fields = append(named.Fields, rpcerr.Field{Path: path, Description: shared.ReplaceAllStringFunc(f.Description, jsonPath)})
	}
	named.Message = shared.ReplaceAllStringFunc(named.Message, jsonPath)
	return &named
}

// jsonPath converts the names of a path to their JSON names. Keys of maps, which are in brackets, stay, and so do the
// members of a JSON text, which follow a slash.
func jsonPath(path string) string {
	var out strings.Builder
	depth, upper := 0, false
	for i, c := range path {
		switch {
		case c == '/' && depth == 0:
			return out.String() + path[i:]
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '_' && depth == 0:
			upper = true
			continue
		}
		if upper {
			c, upper = []rune(strings.ToUpper(string(c)))[0], false
		}
		out.WriteRune(c)
	}
	return out.String()
}
