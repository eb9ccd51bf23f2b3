package modelgw

import (
	"context"
	"errors"
	"io"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/blobserver"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	batchsqlite "github.com/evalfleet/evalfleet/services/modelgw/internal/batch/sqlite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	budgetsqlite "github.com/evalfleet/evalfleet/services/modelgw/internal/budget/sqlite"
)

// Program is the service for a process to run.
func Program(cfg Config) daemon.Program {
	return daemon.Program{
		Name:    "modelgw",
		Patient: true,
		Listen:  "127.0.0.1:7463",
		Effects: true,
		Build: func(ctx context.Context, parts daemon.Parts) (daemon.Server, error) {
			own := []string{parts.Listen}
			if !parts.Idle { // One that only looks calls no model.
				if err := cfg.RefuseOwn(own...); err != nil {
					return nil, err
				}
			}
			batches, err := batchsqlite.New(ctx, parts.DB)
			if err != nil {
				return nil, err
			}
			kept, err := budgetsqlite.New(ctx, parts.DB)
			if err != nil {
				return nil, err
			}
			budgets, err := budget.Open(ctx, bounds(cfg.Budgets), kept, parts.Logger)
			if err != nil {
				return nil, err
			}
			service, err := New(cfg, Deps{ //nolint:contextcheck // What it reads, a file of certificates, it reads at once.
				Own: own, Batches: batches, Budgets: budgets, DataDir: parts.DataDir, Idle: parts.Idle, Ledger: parts.Ledger,
				Owner: parts.Owner, Alive: parts.Alive, Blobs: reader(parts.Blobs), Auth: parts.Auth, Metrics: parts.Metrics, Traces: parts.Traces,
				Registerer: parts.Registerer, Logger: parts.Logger,
			})
			if err != nil {
				return nil, err
			}
			return daemon.GRPC(ctx, parts, service, blobserver.New(parts.Blobs))
		},
		Reload: func(ctx context.Context, running daemon.Backend) error {
			service, ok := running.(*Service)
			if !ok {
				return errors.New("the service that runs is not modelgw")
			}
			if err := cfg.RefuseOwn(service.deps.Own...); err != nil {
				return err
			}
			return service.Reload(ctx, cfg)
		},
		Reloads: reloaded(),
	}
}

// reader reads bodies whole.
func reader(blobs blob.Store) func(ctx context.Context, project, hash string) ([]byte, error) {
	return func(ctx context.Context, project, hash string) ([]byte, error) {
		body, ref, err := blobs.Get(ctx, project, hash, 0, 0)
		if err != nil {
			return nil, err
		}
		if ref.Size > bound.BlobWholeBytes {
			err = rpcerr.BodyTooLarge(bound.BlobWholeBytes, "the body has %d bytes, more than %d", ref.Size, bound.BlobWholeBytes)
			return nil, errors.Join(err, body.Close())
		}
		whole, err := io.ReadAll(regularfile.ContextReader(ctx, body))
		return whole, errors.Join(err, body.Close())
	}
}
