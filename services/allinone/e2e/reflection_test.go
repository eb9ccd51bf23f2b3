package e2e_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jhump/protoreflect/v2/grpcdynamic"
	"github.com/jhump/protoreflect/v2/grpcreflect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// stranger is a client that has the server's address and token and learns everything else from the server: no generated
// code.
type stranger struct {
	reflect *grpcreflect.Client
	stub    *grpcdynamic.Stub
	ctx     context.Context
}

func newStranger(t *testing.T, h *home) *stranger {
	t.Helper()
	conn, err := grpc.NewClient(h.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+h.token())
	reflect := grpcreflect.NewClientAuto(ctx, conn)
	t.Cleanup(func() {
		reflect.Reset()
		assert.NoError(t, conn.Close())
	})
	// Without types of its own every answer is a dynamic message, although this program has the generated ones.
	return &stranger{reflect: reflect, stub: grpcdynamic.NewStub(conn, grpcdynamic.WithResolver(new(protoregistry.Types))), ctx: ctx}
}

// method finds a method, and builds its request from an object.
func (s *stranger) method(t *testing.T, service, name string, request object) (protoreflect.MethodDescriptor, proto.Message) {
	t.Helper()
	found, err := s.reflect.AsResolver().FindDescriptorByName(protoreflect.FullName(service))
	require.NoError(t, err)
	method := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	require.NotNil(t, method, "%s has no method %s", service, name)
	message := dynamicpb.NewMessage(method.Input())
	require.NoError(t, protojson.Unmarshal([]byte(text(t, request)), message))
	return method, message
}

// call calls a unary method.
func (s *stranger) call(t *testing.T, service, name string, request object) object {
	t.Helper()
	method, message := s.method(t, service, name, request)
	answer, err := s.stub.InvokeRpc(s.ctx, method, message)
	require.NoError(t, err)
	return s.object(t, answer)
}

// stream calls a streaming method and returns all answers.
func (s *stranger) stream(t *testing.T, service, name string, request object) []object {
	t.Helper()
	method, message := s.method(t, service, name, request)
	stream, err := s.stub.InvokeRpcServerStream(s.ctx, method, message)
	require.NoError(t, err)
	var all []object
	for {
		answer, err := stream.RecvMsg()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, s.object(t, answer))
	}
}

func (s *stranger) object(t *testing.T, answer proto.Message) object {
	t.Helper()
	require.IsType(t, &dynamicpb.Message{}, answer)
	b, err := protojson.Marshal(answer)
	require.NoError(t, err)
	return parsed(t, string(b))
}

// An evaluation and a sandbox by reflection alone: the server describes all that a client needs.
func TestReflectionOnlyClient(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.serve()
		s := newStranger(t, h)

		services, err := s.reflect.ListServices()
		require.NoError(t, err)
		const evals, sandboxes = "evalfleet.agent.v1.EvalService", "evalfleet.sandbox.v1.SandboxService"
		for _, name := range []protoreflect.FullName{
			evals, sandboxes, "evalfleet.agent.v1.RunService", "evalfleet.agent.v1.InboxService", "evalfleet.agent.v1.AdminService", "evalfleet.model.v1.ModelService",
			"evalfleet.tool.v1.ToolService", "evalfleet.blob.v1.BlobService", "evalfleet.worker.v1.WorkerService", "grpc.health.v1.Health",
		} {
			assert.Contains(t, services, name)
		}

		request := evalOverREST(object{"sample": "sky", "output": "blue"}, object{"sample": "grass", "output": "green"})
		request["parent"] = project
		name := s.call(t, evals, "CreateEval", request)["name"]
		events := s.stream(t, evals, "WatchEval", object{"name": name, "content": true})
		require.NotEmpty(t, events)
		assert.Equal(t, "EVAL_STATE_SUCCEEDED", at(events[len(events)-1], "event", "evalStateChanged", "state"))
		rest := s.stream(t, evals, "WatchEval", object{"name": name, "content": true, "cursor": events[1]["cursor"]})
		assert.Equal(t, events[2:], rest, "a watch goes on after its cursor")
		eval := s.call(t, evals, "GetEval", object{"name": name})
		assert.InDelta(t, 1, at(eval, "results", "scores", 0, "metrics", 0, "value"), 0)

		run, _ := at(s.call(t, evals, "ListSamples", object{"parent": name}), "samples", 0, "run").(string)
		watched := s.stream(t, "evalfleet.agent.v1.RunService", "WatchRun", object{"name": run})
		require.NotEmpty(t, watched)
		assert.NotNil(t, at(watched[len(watched)-1], "event", "runFinished"))
		assert.NotContains(t, text(t, watched), "colour", "without content nothing that was said is shown")

		box := s.call(t, sandboxes, "CreateSandbox", object{"parent": project, "spec": object{"driver": "local"}})["name"]
		printed := s.stream(t, sandboxes, "StreamExec", object{"sandbox": box, "spec": object{"argv": []string{"echo", "hello"}}})
		require.GreaterOrEqual(t, len(printed), 3, "started, output, ended: %v", printed)
		assert.NotNil(t, printed[0]["started"])
		assert.Equal(t, "aGVsbG8K", at(printed[1], "output", "data"))
		assert.NotNil(t, printed[len(printed)-1]["ended"])
		s.call(t, sandboxes, "DeleteSandbox", object{"name": box})
	})
}
