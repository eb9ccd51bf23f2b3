// Package rest is the REST face of the gRPC services: grpc-gateway's mapping with the platform's JSON, errors, idempotency keys, and streams as server-sent events.
package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// MaxBodyBytes bounds a request's body: a message of 4 MiB, whose bytes are longer in JSON.
const MaxBodyBytes = 6 << 20

// keyHeader is a request's key over REST; it becomes the field `request_id`.
const keyHeader = "Idempotency-Key"

// register ties the paths of one service to the connection that has it.
type register func(context.Context, *runtime.ServeMux, grpc.ClientConnInterface) error

// services are all services with a mapping, by full name.
func services() map[string]register {
	return map[string]register{
		agentv1.RunService_ServiceDesc.ServiceName:       over(agentv1.NewRunServiceClient, agentv1.RegisterRunServiceHandlerClient),
		agentv1.EvalService_ServiceDesc.ServiceName:      over(agentv1.NewEvalServiceClient, agentv1.RegisterEvalServiceHandlerClient),
		agentv1.ApprovalService_ServiceDesc.ServiceName:  over(agentv1.NewApprovalServiceClient, agentv1.RegisterApprovalServiceHandlerClient),
		agentv1.AdminService_ServiceDesc.ServiceName:     over(agentv1.NewAdminServiceClient, agentv1.RegisterAdminServiceHandlerClient),
		modelv1.ModelService_ServiceDesc.ServiceName:     over(modelv1.NewModelServiceClient, modelv1.RegisterModelServiceHandlerClient),
		modelv1.CacheService_ServiceDesc.ServiceName:     over(modelv1.NewCacheServiceClient, modelv1.RegisterCacheServiceHandlerClient),
		modelv1.BatchService_ServiceDesc.ServiceName:     over(modelv1.NewBatchServiceClient, modelv1.RegisterBatchServiceHandlerClient),
		modelv1.LimitService_ServiceDesc.ServiceName:     over(modelv1.NewLimitServiceClient, modelv1.RegisterLimitServiceHandlerClient),
		toolv1.ToolService_ServiceDesc.ServiceName:       over(toolv1.NewToolServiceClient, toolv1.RegisterToolServiceHandlerClient),
		toolv1.McpService_ServiceDesc.ServiceName:        over(toolv1.NewMcpServiceClient, toolv1.RegisterMcpServiceHandlerClient),
		sandboxv1.SandboxService_ServiceDesc.ServiceName: over(sandboxv1.NewSandboxServiceClient, sandboxv1.RegisterSandboxServiceHandlerClient),
		blobv1.BlobService_ServiceDesc.ServiceName:       over(blobv1.NewBlobServiceClient, blobv1.RegisterBlobServiceHandlerClient),
	}
}

// over makes the mapping of a service from its generated parts.
func over[Client any](client func(grpc.ClientConnInterface) Client, mapping func(context.Context, *runtime.ServeMux, Client) error) register {
	return func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
		return mapping(ctx, mux, client(conn))
	}
}

// New maps REST to the given connections, by the full name of their services. A connection needs UnaryKeys as an interceptor for Idempotency-Key to count.
func New(ctx context.Context, conns map[string]grpc.ClientConnInterface) (http.Handler, error) {
	asJSON := &messages{runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{},
		UnmarshalOptions: protojson.UnmarshalOptions{}, // An unknown field is an error that names it.
	}}
	var mux *runtime.ServeMux
	answer := func(w http.ResponseWriter, r *http.Request, err error) {
		_, m := runtime.MarshalerForRequest(mux, r)
		runtime.HTTPError(r.Context(), mux, m, w, r, err)
	}
	mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, asJSON),
		runtime.WithMarshalerOption(eventStream, &events{json: asJSON}),
		runtime.WithIncomingHeaderMatcher(header),
		runtime.WithErrorHandler(answerError),
		runtime.WithMiddlewares(strict(answer), resume),
		runtime.WithWriteContentLength(),
	)
	for name, register := range services() {
		conn, ok := conns[name]
		if !ok {
			continue
		}
		if err := register(ctx, mux, asked{conn}); err != nil {
			return nil, err
		}
	}
	return bounded(mux), nil
}

// header says which headers reach the services, and under which name.
func header(name string) (string, bool) {
	switch http.CanonicalHeaderKey(name) {
	case "X-Request-Id":
		return "x-request-id", true
	case keyHeader:
		return strings.ToLower(keyHeader), true
	case "Authorization":
		return "", false // The mapping passes it on by itself, under its own name.
	}
	return "", false
}

// UnaryKeys puts the key of the header into the request's `request_id`, where the request has that field and leaves it empty.
func UnaryKeys(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		if keys := md.Get(keyHeader); len(keys) == 1 {
			setKey(req, keys[0])
		}
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

func setKey(req any, key string) {
	m, ok := req.(proto.Message)
	if !ok {
		return
	}
	r := m.ProtoReflect()
	f := r.Descriptor().Fields().ByName("request_id")
	if f != nil && f.Kind() == protoreflect.StringKind && r.Get(f).String() == "" {
		r.Set(f, protoreflect.ValueOfString(key))
	}
}

// resume makes `Last-Event-ID`, which a browser sends when it connects again, the cursor to go on after.
func resume(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, pathParams map[string]string) {
		if last := r.Header.Get("Last-Event-ID"); last != "" && r.Method == http.MethodGet {
			q := r.URL.Query()
			q.Set("cursor", last)
			r = r.Clone(r.Context())
			r.URL.RawQuery = q.Encode()
		}
		next(w, r, pathParams)
	}
}
