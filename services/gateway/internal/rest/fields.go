package rest

import (
	"context"
	"net/http"
	"regexp"
	"slices"
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

// shared are fields of many requests, which messages name without a path, or a value in quotes, which is not changed.
var shared = regexp.MustCompile(`"[^"]*"|\b(request_id|page_token|page_size)\b`)

// nameShared spells the shared fields in a message as JSON does.
func nameShared(message string) string {
	return shared.ReplaceAllStringFunc(message, func(found string) string {
		if strings.HasPrefix(found, `"`) {
			return found
		}
		return rpcerr.JSONPath(found)
	})
}

// of returns err with JSON field names. A service names fields as the schema does, relative to the request.
func (n naming) of(ctx context.Context, err error) error {
	e, ok := rpcerr.As(rpcerr.FromStatus(err))
	if !ok || len(e.Fields) == 0 && nameShared(e.Message) == e.Message {
		return err
	}
	within := ""
	if pattern, ok := runtime.HTTPPattern(ctx); ok {
		within = n[pattern.String()].field
	}
	named := *e
	named.Fields = make([]rpcerr.Field, 0, len(e.Fields))
	for _, f := range e.Fields {
		path := rpcerr.JSONPath(f.Path)
		if rest, ok := strings.CutPrefix(path, within+"."); ok && within != "" {
			path = rest
		}
		if path != f.Path && f.Path != "" {
			named.Message = strings.ReplaceAll(named.Message, f.Path+": ", path+": ")
		}
		named.Fields = append(named.Fields, rpcerr.Field{Path: path, Description: nameShared(f.Description)})
	}
	named.Message = nameShared(named.Message)
	return &named
}

// maskName is a name of a field or a path of several in an error about a mask, or the name of a resource.
var maskName = regexp.MustCompile(`[\w./]+`)

// ofMask returns an error about the mask of an update with the names of fields as the caller spells them: as in the
// query, else as in JSON. Err is an error that naming returned.
func ofMask(r *http.Request, err error) error {
	e, ok := rpcerr.As(err)
	if !ok || len(e.Fields) != 1 || e.Fields[0].Path != "updateMask" {
		return err
	}
	var sent []string
	for _, mask := range slices.Concat(r.URL.Query()["updateMask"], r.URL.Query()["update_mask"]) {
		sent = append(sent, strings.Split(mask, ",")...)
	}
	spell := func(text string) string {
		return maskName.ReplaceAllStringFunc(text, func(name string) string {
			if slices.Contains(sent, name) || strings.Contains(name, "/") {
				return name
			}
			return rpcerr.JSONPath(name)
		})
	}
	named := *e
	named.Message = spell(e.Message)
	named.Fields = []rpcerr.Field{{Path: e.Fields[0].Path, Description: spell(e.Fields[0].Description)}}
	return &named
}
