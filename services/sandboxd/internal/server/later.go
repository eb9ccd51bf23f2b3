package server

import (
	"context"

	"google.golang.org/grpc"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Capabilities that this version does not have, as errors name them.
const (
	sessions  = "a terminal session"
	ports     = "port forwarding"
	pausing   = "pausing sandboxes"
	snapshots = "taking snapshots"
)

// OpenSession is not built yet.
func (s *Server) OpenSession(context.Context, *sandboxv1.OpenSessionRequest) (*sandboxv1.Session, error) {
	return nil, rpcerr.NotBuiltYet(sessions)
}

// ListSessions is not built yet.
func (s *Server) ListSessions(context.Context, *sandboxv1.ListSessionsRequest) (*sandboxv1.ListSessionsResponse, error) {
	return nil, rpcerr.NotBuiltYet(sessions)
}

// WriteSession is not built yet.
func (s *Server) WriteSession(context.Context, *sandboxv1.WriteSessionRequest) (*sandboxv1.WriteSessionResponse, error) {
	return nil, rpcerr.NotBuiltYet(sessions)
}

// ReadSession is not built yet.
func (s *Server) ReadSession(context.Context, *sandboxv1.ReadSessionRequest) (*sandboxv1.ReadSessionResponse, error) {
	return nil, rpcerr.NotBuiltYet(sessions)
}

// StreamSession is not built yet.
func (s *Server) StreamSession(grpc.BidiStreamingServer[sandboxv1.StreamSessionRequest, sandboxv1.StreamSessionResponse]) error {
	return rpcerr.NotBuiltYet(sessions)
}

// ResizeSession is not built yet.
func (s *Server) ResizeSession(context.Context, *sandboxv1.ResizeSessionRequest) (*sandboxv1.ResizeSessionResponse, error) {
	return nil, rpcerr.NotBuiltYet(sessions)
}

// CloseSession is not built yet.
func (s *Server) CloseSession(context.Context, *sandboxv1.CloseSessionRequest) (*sandboxv1.CloseSessionResponse, error) {
	return nil, rpcerr.NotBuiltYet(sessions)
}

// OpenPort is not built yet.
func (s *Server) OpenPort(context.Context, *sandboxv1.OpenPortRequest) (*sandboxv1.Port, error) {
	return nil, rpcerr.NotBuiltYet(ports)
}

// ListPorts is not built yet.
func (s *Server) ListPorts(context.Context, *sandboxv1.ListPortsRequest) (*sandboxv1.ListPortsResponse, error) {
	return nil, rpcerr.NotBuiltYet(ports)
}

// ClosePort is not built yet.
func (s *Server) ClosePort(context.Context, *sandboxv1.ClosePortRequest) (*sandboxv1.ClosePortResponse, error) {
	return nil, rpcerr.NotBuiltYet(ports)
}

// DialPort is not built yet.
func (s *Server) DialPort(grpc.BidiStreamingServer[sandboxv1.DialPortRequest, sandboxv1.DialPortResponse]) error {
	return rpcerr.NotBuiltYet(ports)
}

// PauseSandbox is not built yet.
func (s *Server) PauseSandbox(context.Context, *sandboxv1.PauseSandboxRequest) (*sandboxv1.Sandbox, error) {
	return nil, rpcerr.NotBuiltYet(pausing)
}

// ResumeSandbox is not built yet.
func (s *Server) ResumeSandbox(context.Context, *sandboxv1.ResumeSandboxRequest) (*sandboxv1.Sandbox, error) {
	return nil, rpcerr.NotBuiltYet(pausing)
}

// CreateSnapshot is not built yet.
func (s *Server) CreateSnapshot(context.Context, *sandboxv1.CreateSnapshotRequest) (*sandboxv1.Snapshot, error) {
	return nil, rpcerr.NotBuiltYet(snapshots)
}

// ListSnapshots is not built yet.
func (s *Server) ListSnapshots(context.Context, *sandboxv1.ListSnapshotsRequest) (*sandboxv1.ListSnapshotsResponse, error) {
	return nil, rpcerr.NotBuiltYet(snapshots)
}

// DeleteSnapshot is not built yet.
func (s *Server) DeleteSnapshot(context.Context, *sandboxv1.DeleteSnapshotRequest) (*sandboxv1.DeleteSnapshotResponse, error) {
	return nil, rpcerr.NotBuiltYet(snapshots)
}
