package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	"github.com/evalfleet/evalfleet/pkg/lifecycle"
)

// Part is the program as a part of its process, alone or beside others. When the part starts, assemble returns the
// program's dependencies except its ledger, and the listener that it serves. Connected peers are closed when the part
// stops, and also if assemble or the start fails. A service that ends by itself is reported to failed, which has room
// for it.
func (p Program) Part(assemble func(context.Context) (Parts, net.Listener, error), failed chan<- error) lifecycle.Part {
	var (
		parts  Parts
		server Server
		served sync.WaitGroup
	)
	disconnect := func() (err error) {
		for _, peer := range parts.Peers {
			err = errors.Join(err, peer.Close())
		}
		return err
	}
	return lifecycle.Part{
		Name:    p.Name,
		Patient: p.Patient,
		Start: func(ctx context.Context) (err error) {
			var listener net.Listener
			parts, listener, err = assemble(ctx)
			if err == nil && p.Effects {
				parts.Ledger, err = effectsqlite.New(ctx, parts.DB, p.Name+"_effects")
			}
			if err == nil {
				server, err = p.Build(ctx, parts)
			}
			if err != nil {
				return errors.Join(err, disconnect())
			}
			if web, ok := server.(Web); ok && parts.Handlers != nil {
				parts.Handlers[p.Name] = web.Handler()
			}
			served.Go(func() {
				if err := server.Serve(listener); err != nil && !errors.Is(err, context.Canceled) {
					failed <- fmt.Errorf("%s: %w", p.Name, err)
				}
			})
			return nil
		},
		Stop: func(ctx context.Context) error {
			err := server.Stop(ctx)
			served.Wait()
			return errors.Join(err, disconnect())
		},
	}
}
