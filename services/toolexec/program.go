package toolexec

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/daemon"
)

// Program returns the service as a program of a process.
func Program(cfg Config) daemon.Program {
	return daemon.Program{
		Name:    "toolexec",
		Listen:  "127.0.0.1:7464",
		Calls:   []string{"sandboxd"},
		Effects: true,
		Build: func(ctx context.Context, parts daemon.Parts) (daemon.Server, error) {
			service, err := New(cfg, Deps{Sandboxes: parts.Peers["sandboxd"], Ledger: parts.Ledger, Owner: parts.Owner, Alive: parts.Alive, Logger: parts.Logger})
			if err != nil {
				return nil, err
			}
			return daemon.GRPC(ctx, parts, service)
		},
	}
}
