package agentorch

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/blob/blobserver"
	"github.com/evalfleet/evalfleet/pkg/daemon"
)

// Program is the service for a process to run.
func Program(cfg Config) daemon.Program {
	return daemon.Program{
		Name:   "agentorch",
		Listen: "127.0.0.1:7462",
		Calls:  []string{"modelgw", "toolexec", "sandboxd"},
		Build: func(ctx context.Context, parts daemon.Parts) (daemon.Server, error) {
			service, err := New(ctx, cfg, Deps{
				Models: parts.Peers["modelgw"], Tools: parts.Peers["toolexec"], Sandboxes: parts.Peers["sandboxd"],
				DB: parts.DB, Owner: parts.Owner, Replica: parts.Replica, Blobs: parts.Blobs, Logger: parts.Logger, Traces: parts.Traces, Services: parts.Services, DataDir: parts.DataDir, Lack: parts.Space.Lack,
			})
			if err != nil {
				return nil, err
			}
			backend := daemon.Backend(service)
			if parts.Idle {
				backend = idle{service}
			}
			return daemon.GRPC(ctx, parts, backend, blobserver.New(parts.Blobs))
		},
	}
}

// idle answers calls and drives nothing.
type idle struct{ *Service }

// Run waits for the end.
func (idle) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
