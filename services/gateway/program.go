package gateway

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/daemon"
)

// DefaultListen is where the gateway listens when nothing else is said.
const DefaultListen = "127.0.0.1:7460"

// Program is the gateway for a process to run.
func Program(cfg Config) daemon.Program {
	return daemon.Program{
		Name:      "gateway",
		Listen:    DefaultListen,
		Calls:     []string{"modelgw", "toolexec", "sandboxd", "agentorch"},
		Stateless: true,
		Forward:   true,
		Build: func(ctx context.Context, parts daemon.Parts) (daemon.Server, error) {
			// Its clients live as long as it does, not as long as the start.
			return New(context.WithoutCancel(ctx), cfg, Deps{
				Models: parts.Peers["modelgw"], Tools: parts.Peers["toolexec"], Sandboxes: parts.Peers["sandboxd"], Orchestrator: parts.Peers["agentorch"],
				Vendor: parts.Handlers["modelgw"], VendorAddress: parts.Addresses["modelgw"],
				Listen: parts.Listen, Auth: parts.Auth, Connections: parts.Connections, Logger: parts.Logger, Metrics: parts.Metrics, Gatherer: parts.Gatherer,
			})
		},
	}
}
