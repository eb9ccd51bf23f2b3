package daemon_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/daemon"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// peer counts how often it is closed.
type peer struct {
	grpc.ClientConnInterface
	closed int
}

func (p *peer) Close() error { p.closed++; return nil }

// served is a service whose Serve returns end.
type served struct{ end error }

func (s served) Serve(net.Listener) error   { return s.end }
func (s served) Stop(context.Context) error { return nil }

// A process of one service and one of all start and stop a program in the same way.
func TestAPartOwnsItsPeersAndReportsItsEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		assemble, build, serve error
		starts, reported       bool
	}{
		"a peer without an address":           {assemble: broken},
		"a service that cannot be built":      {build: broken},
		"a service that is stopped":           {starts: true},
		"a service whose context ended":       {serve: context.Canceled, starts: true},
		"a service that ends before its time": {serve: broken, starts: true, reported: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connected, failed := &peer{}, make(chan error, 1)
			program := daemon.Program{Name: "thing", Build: func(_ context.Context, parts daemon.Parts) (daemon.Server, error) {
				assert.Same(t, connected, parts.Peers["modelgw"])
				return served{c.serve}, c.build
			}}
			part := program.Part(func(context.Context) (daemon.Parts, net.Listener, error) {
				return daemon.Parts{Peers: map[string]grpcclient.Conn{"modelgw": connected}}, nil, c.assemble
			}, failed)
			err := part.Start(t.Context())
			if c.starts {
				require.NoError(t, err)
				assert.Zero(t, connected.closed)
				require.NoError(t, part.Stop(t.Context()))
			} else {
				require.ErrorIs(t, err, broken)
			}
			assert.Equal(t, 1, connected.closed)
			if c.reported {
				assert.ErrorContains(t, waittest.For(t, failed, "the end of the service"), "thing: broken")
			} else {
				assert.Empty(t, failed)
			}
		})
	}
}
