package server

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/version"
)

// AdminConfig is the information that the service returns about the server.
type AdminConfig struct {
	Services         []string
	DataDir, Replica string
	Started          time.Time
}

// Admin is the AdminService as far as it is built: it describes the server.
type Admin struct {
	agentv1.UnimplementedAdminServiceServer

	cfg       AdminConfig
	sandboxes sandboxv1.SandboxServiceClient
	logger    *slog.Logger
}

// NewAdmin returns the AdminService.
func NewAdmin(cfg AdminConfig, sandboxes sandboxv1.SandboxServiceClient, logger *slog.Logger) *Admin {
	return &Admin{cfg: cfg, sandboxes: sandboxes, logger: logger}
}

// GetServerInfo describes the server. If sandboxd does not answer, the default driver is left out.
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
