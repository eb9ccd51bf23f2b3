package server

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/version"
)

// AdminConfig is what the service tells about the server.
type AdminConfig struct {
	Services         []string
	DataDir, Replica string
	Started          time.Time
}

// Admin is the AdminService as far as it is built: it tells about the server.
type Admin struct {
	agentv1.UnimplementedAdminServiceServer

	cfg       AdminConfig
	sandboxes sandboxv1.SandboxServiceClient
	logger    *slog.Logger
}

// NewAdmin makes the AdminService.
func NewAdmin(cfg AdminConfig, sandboxes sandboxv1.SandboxServiceClient, logger *slog.Logger) *Admin {
	return &Admin{cfg: cfg, sandboxes: sandboxes, logger: logger}
}

var errCatalogue = rpcerr.NotBuiltYet("the catalogue of projects and keys")

// GetServerInfo tells what runs here. Without an answer of sandboxd it leaves the default driver out.
func (a *Admin) GetServerInfo(ctx context.Context, _ *agentv1.GetServerInfoRequest) (*agentv1.ServerInfo, error) {
	info := &agentv1.ServerInfo{
		Version: version.String(), Services: a.cfg.Services, DataDir: a.cfg.DataDir, Replica: a.cfg.Replica, StartTime: timestamppb.New(a.cfg.Started),
	}
	drivers, err := a.sandboxes.ListDrivers(ctx, &sandboxv1.ListDriversRequest{})
	if err != nil {
		a.logger.WarnContext(ctx, "cannot ask for the sandbox drivers", "error", err)
		return info, nil
	}
	for _, d := range drivers.GetDrivers() {
		if d.GetIsDefault() {
			info.DefaultDriver = d.GetName()
		}
	}
	return info, nil
}

// CreateProject is not built yet.
func (*Admin) CreateProject(context.Context, *agentv1.CreateProjectRequest) (*agentv1.Project, error) {
	return nil, errCatalogue
}

// GetProject is not built yet.
func (*Admin) GetProject(context.Context, *agentv1.GetProjectRequest) (*agentv1.Project, error) {
	return nil, errCatalogue
}

// ListProjects is not built yet.
func (*Admin) ListProjects(context.Context, *agentv1.ListProjectsRequest) (*agentv1.ListProjectsResponse, error) {
	return nil, errCatalogue
}

// CreateKey is not built yet.
func (*Admin) CreateKey(context.Context, *agentv1.CreateKeyRequest) (*agentv1.CreateKeyResponse, error) {
	return nil, errCatalogue
}

// ListKeys is not built yet.
func (*Admin) ListKeys(context.Context, *agentv1.ListKeysRequest) (*agentv1.ListKeysResponse, error) {
	return nil, errCatalogue
}

// DeleteKey is not built yet.
func (*Admin) DeleteKey(context.Context, *agentv1.DeleteKeyRequest) (*agentv1.DeleteKeyResponse, error) {
	return nil, errCatalogue
}
