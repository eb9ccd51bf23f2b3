package server

import (
	"context"
	"strconv"

	"google.golang.org/grpc"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/execute"
)

// ExecuteTools runs calls and streams their results.
func (t *Tools) ExecuteTools(request *toolv1.ExecuteToolsRequest, stream grpc.ServerStreamingServer[toolv1.ExecuteToolsResponse]) error {
	project, err := resource.ParseProject("parent", request.GetParent())
	if err != nil {
		return err
	}
	offers, err := t.registry.Offer(project, request.GetTools())
	if err != nil {
		return err
	}
	if err := belong(project, request.GetSandboxes()); err != nil {
		return err
	}
	if request.GetScope() != "" {
		return rpcerr.Wrap(rpcerr.NotBuiltYet("tool scopes"), "scope")
	}
	return t.executor.Run(stream.Context(), &execute.Batch{
		Project:        project,
		RequestID:      request.GetRequestId(),
		Attribution:    request.GetAttribution(),
		Offers:         offers,
		Refs:           request.GetTools(),
		Calls:          request.GetCalls(),
		MaxOutputBytes: request.MaxOutputBytes,
		Sandboxes:      request.GetSandboxes(),
		Store:          request.GetStore(),
		FailFast:       request.GetFailFast(),
		Timeout:        request.GetTimeout().AsDuration(),
	}, stream.Send)
}

// AttachToolCall waits for one call of an earlier request.
func (t *Tools) AttachToolCall(ctx context.Context, request *toolv1.AttachToolCallRequest) (*toolv1.ToolResult, error) {
	project, err := resource.ParseProject("parent", request.GetParent())
	if err != nil {
		return nil, err
	}
	return t.executor.Attach(ctx, project, request.GetRequestId(), &toolv1.CallRef{CallId: request.GetCallId(), Index: request.GetIndex()})
}

// CancelTools stops calls, and prevents unknown ones from beginning.
func (t *Tools) CancelTools(ctx context.Context, request *toolv1.CancelToolsRequest) (*toolv1.CancelToolsResponse, error) {
	project, err := resource.ParseProject("parent", request.GetParent())
	if err != nil {
		return nil, err
	}
	done, err := t.executor.Cancel(ctx, project, request.GetRequestId(), request.GetCalls())
	if err != nil {
		return nil, err
	}
	return &toolv1.CancelToolsResponse{AlreadyDone: done}, nil
}

// ReleaseTools deletes stored results.
func (t *Tools) ReleaseTools(ctx context.Context, request *toolv1.ReleaseToolsRequest) (*toolv1.ReleaseToolsResponse, error) {
	project, err := resource.ParseProject("parent", request.GetParent())
	if err != nil {
		return nil, err
	}
	if err := t.executor.Release(ctx, project, request.GetRequestId(), request.GetCalls()); err != nil {
		return nil, err
	}
	return &toolv1.ReleaseToolsResponse{}, nil
}

// ReleaseRunTools deletes the stored results of runs.
func (t *Tools) ReleaseRunTools(ctx context.Context, request *toolv1.ReleaseRunToolsRequest) (*toolv1.ReleaseRunToolsResponse, error) {
	project, runs, err := resource.Children(request.GetParent(), "runs", request.GetRuns())
	if err != nil {
		return nil, err
	}
	if err := t.executor.ReleaseRuns(ctx, project, runs); err != nil {
		return nil, err
	}
	return &toolv1.ReleaseRunToolsResponse{}, nil
}

// belong checks that sandboxes are of the request's project: a call must not reach into another project.
func belong(project string, sandboxes map[string]string) error {
	for environment, name := range sandboxes {
		field := "sandboxes[" + strconv.Quote(environment) + "]"
		parsed, err := resource.Parse(field, name, "sandboxes")
		if err != nil {
			return err
		}
		if parsed.Project != project {
			return rpcerr.InvalidField(field, "%s is not a sandbox of projects/%s", name, project)
		}
	}
	return nil
}
