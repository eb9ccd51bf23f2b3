package rest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A message names keys and pages as the fields that it is about: a caller finds both in the same reference.
func TestMessagesNameKeysAndPagesAsJSONDoes(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`requestId "k" was used for a command with other content`: rpcerr.RequestIDReused("k", "request_id %q was used for a command with other content", "k"),
		"pageToken: cannot be read; list again without pageToken": rpcerr.InvalidField("page_token", "cannot be read; list again without page_token"),
		`"page_size" is no tool`:                                  rpcerr.InvalidRequest("%q is no tool", "page_size"),
		"my_request_id stays":                                     rpcerr.InvalidRequest("my_request_id stays"),
	} {
		e, ok := rpcerr.As(naming{}.of(t.Context(), err))
		require.True(t, ok)
		assert.Equal(t, want, e.Message)
		for _, f := range e.Fields {
			assert.Equal(t, "pageToken", f.Path)
			assert.Equal(t, "cannot be read; list again without pageToken", f.Description)
		}
	}
}

// The mapping sets what the path names over what the body says, so that another name in the body would go unnoticed.
func TestABodyThatNamesAnotherThanItsPathIsRefused(t *testing.T) {
	t.Parallel()
	checked := 0
	for path, body := range fieldBodies() {
		for _, v := range variable.FindAllStringSubmatch(path, -1) {
			name, ok := strings.CutPrefix(v[1], body.field+".")
			if !ok {
				continue
			}
			checked++
			m := body.message.New()
			f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
			require.NotNil(t, f, path)
			params := map[string]string{v[1]: "projects/p/things/a"}
			require.NoError(t, renamed(m, body.field, params), path)
			m.Set(f, protoreflect.ValueOfString("projects/p/things/a"))
			require.NoError(t, renamed(m, body.field, params), path)
			m.Set(f, protoreflect.ValueOfString("projects/p/things/b"))
			e, ok := rpcerr.As(renamed(m, body.field, params))
			require.True(t, ok, path)
			assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, e.Reason, path)
			assert.Equal(t, f.JSONName(), e.Fields[0].Path, path)
		}
	}
	assert.Greater(t, checked, 4)
}

func TestBodiesThatAreAFieldAreKnown(t *testing.T) {
	t.Parallel()
	all := fieldBodies()
	assert.Equal(t, "budget", all["/api/v1/{budget.name=projects/*/budgets/**}"].field, all)
	assert.Equal(t, "request", all["/api/v1/{request.parent=projects/*}/models:streamGenerate"].field)
}
