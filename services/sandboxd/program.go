package sandboxd

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/evalfleet/evalfleet/pkg/daemon"
)

// Program is the service for a process to run. Its folder is `sandboxes` in the data directory when cfg names none.
func Program(cfg Config) daemon.Program {
	return daemon.Program{
		Name:    "sandboxd",
		Listen:  "127.0.0.1:7465",
		Effects: true,
		Build: func(ctx context.Context, parts daemon.Parts) (daemon.Server, error) {
			cfg := cfg
			cfg.Dir = cmp.Or(cfg.Dir, filepath.Join(parts.DataDir, "sandboxes"))
			//nolint:contextcheck // A start is as short as the disk allows.
			service, err := New(cfg, Deps{DB: parts.DB, Ledger: parts.Ledger, Owner: parts.Owner, Alive: parts.Alive, Space: parts.Space, Blobs: parts.Blobs, Logger: parts.Logger})
			if err != nil {
				return nil, err
			}
			return daemon.GRPC(ctx, parts, service)
		},
	}
}
