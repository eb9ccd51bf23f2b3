// Package rest is the REST API of the gRPC services: grpc-gateway's mapping with the platform's JSON and errors, keys
// and etags in headers, streams as server-sent events, and files as plain bodies.
package rest

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// MaxBodyBytes bounds a request's body: a message of 4 MiB, whose bytes are longer in JSON.
const MaxBodyBytes = 6 << 20

// register routes the paths of one service to the connection to it.
type register func(context.Context, *runtime.ServeMux, grpc.ClientConnInterface) error

// services are all services with a mapping, by full name.
func services() map[string]register {
	return map[string]register{
		agentv1.RunService_ServiceDesc.ServiceName:            over(agentv1.NewRunServiceClient, agentv1.RegisterRunServiceHandlerClient),
		agentv1.EvalService_ServiceDesc.ServiceName:           over(agentv1.NewEvalServiceClient, agentv1.RegisterEvalServiceHandlerClient),
		agentv1.InboxService_ServiceDesc.ServiceName:          over(agentv1.NewInboxServiceClient, agentv1.RegisterInboxServiceHandlerClient),
		agentv1.QuotaService_ServiceDesc.ServiceName:          over(agentv1.NewQuotaServiceClient, agentv1.RegisterQuotaServiceHandlerClient),
		agentv1.BridgeService_ServiceDesc.ServiceName:         over(agentv1.NewBridgeServiceClient, agentv1.RegisterBridgeServiceHandlerClient),
		agentv1.CatalogueService_ServiceDesc.ServiceName:      over(agentv1.NewCatalogueServiceClient, agentv1.RegisterCatalogueServiceHandlerClient),
		agentv1.ForkService_ServiceDesc.ServiceName:           over(agentv1.NewForkServiceClient, agentv1.RegisterForkServiceHandlerClient),
		agentv1.ScoreService_ServiceDesc.ServiceName:          over(agentv1.NewScoreServiceClient, agentv1.RegisterScoreServiceHandlerClient),
		agentv1.SteeringService_ServiceDesc.ServiceName:       over(agentv1.NewSteeringServiceClient, agentv1.RegisterSteeringServiceHandlerClient),
		agentv1.AdminService_ServiceDesc.ServiceName:          over(agentv1.NewAdminServiceClient, agentv1.RegisterAdminServiceHandlerClient),
		modelv1.ModelService_ServiceDesc.ServiceName:          over(modelv1.NewModelServiceClient, modelv1.RegisterModelServiceHandlerClient),
		modelv1.CacheService_ServiceDesc.ServiceName:          over(modelv1.NewCacheServiceClient, modelv1.RegisterCacheServiceHandlerClient),
		modelv1.BatchService_ServiceDesc.ServiceName:          over(modelv1.NewBatchServiceClient, modelv1.RegisterBatchServiceHandlerClient),
		modelv1.LimitService_ServiceDesc.ServiceName:          over(modelv1.NewLimitServiceClient, modelv1.RegisterLimitServiceHandlerClient),
		toolv1.ToolService_ServiceDesc.ServiceName:            over(toolv1.NewToolServiceClient, toolv1.RegisterToolServiceHandlerClient),
		toolv1.McpService_ServiceDesc.ServiceName:             over(toolv1.NewMcpServiceClient, toolv1.RegisterMcpServiceHandlerClient),
		sandboxv1.SandboxService_ServiceDesc.ServiceName:      over(sandboxv1.NewSandboxServiceClient, sandboxv1.RegisterSandboxServiceHandlerClient),
		sandboxv1.PauseService_ServiceDesc.ServiceName:        over(sandboxv1.NewPauseServiceClient, sandboxv1.RegisterPauseServiceHandlerClient),
		sandboxv1.PortService_ServiceDesc.ServiceName:         over(sandboxv1.NewPortServiceClient, sandboxv1.RegisterPortServiceHandlerClient),
		sandboxv1.SessionService_ServiceDesc.ServiceName:      over(sandboxv1.NewSessionServiceClient, sandboxv1.RegisterSessionServiceHandlerClient),
		sandboxv1.SnapshotService_ServiceDesc.ServiceName:     over(sandboxv1.NewSnapshotServiceClient, sandboxv1.RegisterSnapshotServiceHandlerClient),
		modelv1.DetachedService_ServiceDesc.ServiceName:       over(modelv1.NewDetachedServiceClient, modelv1.RegisterDetachedServiceHandlerClient),
		toolv1.ScopeService_ServiceDesc.ServiceName:           over(toolv1.NewScopeServiceClient, toolv1.RegisterScopeServiceHandlerClient),
		sandboxv1.InboundService_ServiceDesc.ServiceName:      over(sandboxv1.NewInboundServiceClient, sandboxv1.RegisterInboundServiceHandlerClient),
		sandboxv1.SandboxGroupService_ServiceDesc.ServiceName: over(sandboxv1.NewSandboxGroupServiceClient, sandboxv1.RegisterSandboxGroupServiceHandlerClient),
		sandboxv1.SandboxPoolService_ServiceDesc.ServiceName:  over(sandboxv1.NewSandboxPoolServiceClient, sandboxv1.RegisterSandboxPoolServiceHandlerClient),
		blobv1.BlobService_ServiceDesc.ServiceName:            over(blobv1.NewBlobServiceClient, blobv1.RegisterBlobServiceHandlerClient),
	}
}

// over returns the mapping of a service, made of its generated parts.
func over[Client any](newClient func(grpc.ClientConnInterface) Client, mapping func(context.Context, *runtime.ServeMux, Client) error) register {
	return func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
		return mapping(ctx, mux, newClient(conn))
	}
}

// New returns a handler that maps REST to the given connections, by the full name of their services. Calls that only
// wait end with running.
func New(running context.Context, conns map[string]grpc.ClientConnInterface) (http.Handler, error) {
	conns = clients(running, conns)
	asJSON := &messages{runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{},
		UnmarshalOptions: protojson.UnmarshalOptions{}, // An unknown field is an error that names it.
	}}
	names := naming(fieldBodies())
	var mux *runtime.ServeMux
	answer := func(w http.ResponseWriter, r *http.Request, err error) {
		_, m := runtime.MarshalerForRequest(mux, r)
		runtime.HTTPError(r.Context(), mux, m, w, r, spelled{err})
	}
	handle := func(method string, h fileHandler) runtime.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request, pathParams map[string]string) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			called, err := runtime.AnnotateContext(ctx, mux, r, method)
			if err == nil {
				err = h(called, w, r, pathParams)
			}
			if err != nil {
				_, m := runtime.MarshalerForRequest(mux, r)
				runtime.HTTPError(r.Context(), mux, m, w, r, err)
			}
		}
	}
	mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, asJSON),
		runtime.WithMarshalerOption(eventStream, &events{json: asJSON}),
		runtime.WithIncomingHeaderMatcher(header),
		runtime.WithErrorHandler(names.answer),
		runtime.WithStreamErrorHandler(func(ctx context.Context, err error) *status.Status { return status.Convert(names.of(ctx, err)) }),
		runtime.WithRoutingErrorHandler(names.unrouted),
		runtime.WithForwardResponseOption(showEtag),
		runtime.WithMiddlewares(misrouted(answer), strict(answer), asJSON.ofAField(answer), resume, plain(conns, handle)),
		runtime.WithWriteContentLength(),
	)
	// The mapping matches the last registered route first: `projects/{project}:watch` of RunService must precede the
	// name of CatalogueService's GetProject, which matches it too.
	all := services()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		register := all[name]
		conn, ok := conns[name]
		if !ok {
			continue
		}
		if err := register(running, mux, conn); err != nil {
			return nil, err
		}
	}
	for _, u := range uploads() {
		conn, ok := conns[u.service]
		for _, method := range []string{http.MethodPut, http.MethodPost} {
			if !ok {
				continue
			}
			if err := mux.HandlePath(method, u.path, handle(u.method, u.over(conn, mux))); err != nil {
				return nil, err
			}
		}
	}
	return bounded(mux), nil
}

// fileHandler answers a call whose request or answer is a file. The error that it returns becomes the answer.
type fileHandler func(ctx context.Context, w http.ResponseWriter, r *http.Request, pathParams map[string]string) error

// fill sets the fields of a request from the path and the query.
func fill(request proto.Message, query url.Values, pathParams map[string]string) error {
	for field, value := range pathParams {
		query.Set(field, value)
	}
	if err := runtime.PopulateQueryParameters(request, query, utilities.NewDoubleArray(nil)); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// resume makes `Last-Event-ID`, which a browser sends when it reconnects, the cursor to continue after.
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
