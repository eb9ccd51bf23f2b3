package rest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// called is a connection that notes the method of the last call and fails it.
type called struct{ method string }

var errCalled = errors.New("called")

func (c *called) Invoke(_ context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	c.method = method
	return errCalled
}

func (c *called) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	c.method = method
	return nil, errCalled
}

// No route is hidden by another one: a path that a method's pattern describes, with the method's verb, calls that
// method, whichever service has it and in whichever order services are registered.
func TestEveryRouteReachesItsOwnMethod(t *testing.T) {
	t.Parallel()
	conn := &called{}
	conns := map[string]grpc.ClientConnInterface{}
	for name := range services() {
		conns[name] = conn
	}
	h, err := New(t.Context(), conns)
	require.NoError(t, err)
	reached := 0
	reach := func(verb, template, want string) {
		for _, word := range []string{"default", "a-b_c.1"} {
			path := variable.ReplaceAllStringFunc(wild.ReplaceAllString(template, "{$1=*}"), func(v string) string {
				return strings.NewReplacer("**", word, "*", word).Replace(variable.FindStringSubmatch(v)[2])
			})
			conn.method = ""
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), verb, path, strings.NewReader("")))
			assert.Equal(t, want, conn.method, "%s %s", verb, path)
			reached++
		}
	}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				rule, _ := proto.GetExtension(methods.Get(j).Options(), annotations.E_Http).(*annotations.HttpRule)
				for _, r := range append(rule.GetAdditionalBindings(), rule) {
					if at := routeOf(r); at != "" && strings.HasPrefix(string(file.Package()), "evalfleet.") {
						verb, template, _ := strings.Cut(string(at), " ")
						reach(verb, template, "/"+string(methods.Get(j).Parent().FullName())+"/"+string(methods.Get(j).Name()))
					}
				}
			}
		}
		return true
	})
	for _, u := range uploads() {
		reach(http.MethodPut, u.path, u.method)
		reach(http.MethodPost, u.path, u.method)
	}
	assert.Greater(t, reached, 200)
}
