package server

import (
	"context"

	"google.golang.org/grpc"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Approvals is the ApprovalService. No run asks a person yet.
type Approvals struct {
	agentv1.UnimplementedApprovalServiceServer
}

var errApprovals = rpcerr.NotBuiltYet("asking a person about tool calls")

// GetApproval is not built yet.
func (Approvals) GetApproval(context.Context, *agentv1.GetApprovalRequest) (*agentv1.Approval, error) {
	return nil, errApprovals
}

// ListApprovals is not built yet.
func (Approvals) ListApprovals(context.Context, *agentv1.ListApprovalsRequest) (*agentv1.ListApprovalsResponse, error) {
	return nil, errApprovals
}

// DecideApproval is not built yet.
func (Approvals) DecideApproval(context.Context, *agentv1.DecideApprovalRequest) (*agentv1.Approval, error) {
	return nil, errApprovals
}

// WatchApprovals is not built yet.
func (Approvals) WatchApprovals(*agentv1.WatchApprovalsRequest, grpc.ServerStreamingServer[agentv1.WatchApprovalsResponse]) error {
	return errApprovals
}
