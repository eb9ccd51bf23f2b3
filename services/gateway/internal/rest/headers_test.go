package rest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

func with(t *testing.T, headers ...string) context.Context {
	t.Helper()
	return metadata.NewOutgoingContext(t.Context(), metadata.Pairs(headers...))
}

// methods calls each with every method that REST has.
func methods(t *testing.T, each func(m protoreflect.MethodDescriptor)) {
	t.Helper()
	for name := range services() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		require.NoError(t, err)
		all := d.(protoreflect.ServiceDescriptor).Methods() //nolint:forcetypeassert // The name is a service's.
		for i := range all.Len() {
			if rule, _ := proto.GetExtension(all.Get(i).Options(), annotations.E_Http).(*annotations.HttpRule); rule != nil {
				each(all.Get(i))
			}
		}
	}
}

// The header of a key sets the key of every call that has one, streams included, and is rejected by all others. It
// never sets the name of the resource.
func TestTheHeaderOfAKeyIsAKeyOrIsRefused(t *testing.T) {
	t.Parallel()
	keyed := map[string]bool{}
	methods(t, func(m protoreflect.MethodDescriptor) {
		request := dynamicpb.NewMessage(m.Input())
		err := setHeaders(with(t, keyHeader, "k"), request)
		name := string(m.Name())
		if err == nil {
			keyed[name] = true
			text := request.String()
			assert.Contains(t, text, `request_id:`, name)
			for _, about := range []string{"Attach", "Release", "List", "Get", "Watch"} {
				assert.False(t, strings.HasPrefix(name, about), name)
			}
			return
		}
		e, _ := rpcerr.As(err)
		require.NotNil(t, e, name)
		assert.Equal(t, keyHeader, e.Fields[0].Path, name)
	})
	for _, name := range []string{"Generate", "StreamGenerate", "ExecuteTools", "Exec", "StreamExec", "CreateRun", "CreateEval", "CreateSandbox", "PostMessage", "CancelRun", "RetuneLimits"} {
		assert.True(t, keyed[name], name)
	}
	for _, name := range []string{"CancelGenerate", "CancelTools", "CancelExec", "UpdateBudget", "DeleteRun", "GetRun"} {
		assert.False(t, keyed[name], name)
	}
}

func TestAKeyIsSaidOnce(t *testing.T) {
	t.Parallel()
	r := &modelv1.StreamGenerateRequest{Request: &modelv1.GenerateRequest{RequestId: "k"}}
	require.NoError(t, setHeaders(with(t, keyHeader, "k"), r))
	require.ErrorContains(t, setHeaders(with(t, keyHeader, "other"), r), `is "other", and request_id is "k"`)
	require.ErrorContains(t, setHeaders(with(t, keyHeader, "a", keyHeader, "b"), r), "is sent 2 times")
}

// If-Match sets the etag of every update, in the request or in its resource, and is rejected by all others.
func TestIfMatchIsAnUpdatesEtagOrIsRefused(t *testing.T) {
	t.Parallel()
	methods(t, func(m protoreflect.MethodDescriptor) {
		request := dynamicpb.NewMessage(m.Input())
		err := setHeaders(with(t, etagHeader, `"7"`), request)
		if m.Input().Fields().ByName("update_mask") == nil {
			require.ErrorContains(t, err, "looks at no etag", m.Name())
			return
		}
		require.NoError(t, err, m.Name())
		assert.Contains(t, request.String(), `etag:`, m.Name())
	})
	for value, want := range map[string]string{`"7"`: "7", `W/"7"`: "7", "7": "7", "*": "", `"10/-"`: "10/-", `"1", "2"`: "not one etag", `"1`: "not one etag", "": "not one etag"} {
		r := &agentv1.UpdateEvalRequest{}
		err := setHeaders(with(t, etagHeader, value), r)
		if strings.HasPrefix(want, "not") {
			require.ErrorContains(t, err, want, value)
			continue
		}
		require.NoError(t, err, value)
		assert.Equal(t, want, r.GetEval().GetEtag(), value)
	}
}
