package rest

import (
	"fmt"
	"maps"
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

// route identifies a call by its method and path, such as `GET /api/v1/{name=projects/*/evals/*}`.
type route string

// queries are the messages whose fields the query of a route may set; nil if the route takes no query, because the body
// has all fields.
func queries() map[route]protoreflect.MessageDescriptor {
	all := map[route]protoreflect.MessageDescriptor{}
	for name := range services() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			continue
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods() //nolint:forcetypeassert // The name is a service's.
		for i := range methods.Len() {
			m := methods.Get(i)
			rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			for _, r := range append(rule.GetAdditionalBindings(), rule) {
				input := m.Input()
				if r.GetBody() == "*" {
					input = nil
				}
				if at := routeOf(r); at != "" {
					all[at] = input
				}
			}
		}
	}
	return all
}

// wild is a path variable that matches any one segment, which the mapping writes as `{hash=*}`.
var wild = regexp.MustCompile(`\{([\w.]+)\}`)

// routeOf returns the route of a rule, in the mapping's syntax; empty for a method that has none.
func routeOf(r *annotations.HttpRule) route {
	method, path := "", ""
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		method, path = http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		method, path = http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		method, path = http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		method, path = http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		method, path = http.MethodDelete, p.Delete
	default:
		return ""
	}
	return route(method + " " + wild.ReplaceAllString(path, "{$1=*}"))
}

// strict rejects query parameters that the route does not have or that its path sets, which the mapping would silently
// ignore.
func strict(answer func(http.ResponseWriter, *http.Request, error)) runtime.Middleware {
	known := queries()
	return func(next runtime.HandlerFunc) runtime.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request, pathParams map[string]string) {
			pattern, _ := runtime.HTTPPattern(r.Context())
			if input, ok := known[route(r.Method+" "+pattern.String())]; ok {
				query := r.URL.Query()
				for _, name := range slices.Sorted(maps.Keys(query)) {
					path := pathOf(input, name)
					if path == "" {
						answer(w, r, rpcerr.InvalidField(name, "unknown query parameter; %s", offer(input, pathParams)))
						return
					}
					if _, inPath := pathParams[path]; inPath {
						answer(w, r, rpcerr.InvalidField(name, "stands in the path already; leave the parameter out"))
						return
					}
					if err := readParameter(name, query[name], fieldAt(input, path)); err != nil {
						answer(w, r, err)
						return
					}
				}
				if full := query.Encode(); r.URL.RawQuery != "" && full != r.URL.RawQuery {
					r = r.Clone(r.Context())
					r.URL.RawQuery = full
				}
			}
			next(w, r, pathParams)
		}
	}
}

// pathOf returns the path of the field that a parameter such as `page_size`, `limit.start` or `labels[key]` sets, in
// the schema's names; empty if d has no such field.
func pathOf(d protoreflect.MessageDescriptor, parameter string) string {
	if d == nil {
		return ""
	}
	name, rest, nested := strings.Cut(parameter, ".")
	name, _, _ = strings.Cut(name, "[")
	f := field(d, name)
	if f == nil {
		return ""
	}
	if !nested {
		return string(f.Name())
	}
	if inner := pathOf(f.Message(), rest); inner != "" {
		return string(f.Name()) + "." + inner
	}
	return ""
}

// fieldAt returns the field at a path that pathOf returned.
func fieldAt(d protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	name, rest, nested := strings.Cut(path, ".")
	f := field(d, name)
	if nested {
		return fieldAt(f.Message(), rest)
	}
	return f
}

// readParameter replaces the values of a parameter by those that the mapping takes for a field. It fails if the
// parameter or one of its values does not fit the field.
func readParameter(name string, values []string, f protoreflect.FieldDescriptor) error {
	if wanted := misplaced(name, len(values), f); wanted != "" {
		return rpcerr.InvalidField(name, "%s", wanted)
	}
	for i, value := range values {
		taken, wanted := ofQuery(value, f)
		if wanted != "" {
			return rpcerr.InvalidField(name, "%s", wanted)
		}
		values[i] = taken
	}
	return nil
}

// misplaced says what is wrong with a parameter that has so many values: the key of its name, or their number. It is
// empty where nothing is.
func misplaced(name string, values int, f protoreflect.FieldDescriptor) string {
	bare, key, keyed := strings.Cut(name, "[")
	switch {
	case f.IsMap() && (len(key) < 2 || !strings.HasSuffix(key, "]")):
		return fmt.Sprintf("write %s[KEY]=VALUE", bare)
	case !f.IsMap() && keyed:
		return fmt.Sprintf("has no keys; write %s=VALUE", bare)
	case values > 1 && !f.IsList():
		return fmt.Sprintf("is given %d times; give it once", values)
	default:
		return ""
	}
}

func offer(d protoreflect.MessageDescriptor, pathParams map[string]string) string {
	if d == nil {
		return "this call takes none: all of its fields stand in the body"
	}
	names := slices.DeleteFunc(fieldNames(d), func(name string) bool {
		_, inPath := pathParams[string(field(d, name).Name())]
		return inPath
	})
	if len(names) == 0 {
		return "this call takes none"
	}
	return "known: " + strings.Join(names, ", ")
}
