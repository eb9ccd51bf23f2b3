package gateway

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/daemon"
)

// DefaultListen is the gateway's default listen address.
const DefaultListen = "127.0.0.1:7460"

// Program returns the gateway as a program of a process.
func Program(cfg Config) daemon.Program {
	return daemon.Program{
		Name:      "gateway",
		Patient:   true,
		Listen:    DefaultListen,
		Calls:     []string{"modelgw", "toolexec", "sandboxd", "agentorch"},
		Stateless: true,
		Forward:   true,
		Build: func(ctx context.Context, parts daemon.Parts) (daemon.Server, error) {
			// Clients live as long as the gateway, not as long as its start.
			return New(context.WithoutCancel(ctx), cfg, Deps{
				Models: parts.Peers["modelgw"], Tools: parts.Peers["toolexec"], Sandboxes: parts.Peers["sandboxd"], Orchestrator: parts.Peers["agentorch"],
				Servers: parts.Servers, Vendor: parts.Handlers["modelgw"], VendorAddress: parts.Addresses["modelgw"],
				Listen: parts.Listen, Auth: parts.Auth, Connections: parts.Connections, Logger: parts.Logger, Metrics: parts.Metrics, Traces: parts.Traces, Gatherer: parts.Gatherer,
			})
		},
	}
}
