package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"net"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

// Use calls f with the connection to a sandbox's guest, and counts as use of it. It fails with RESOURCE_NOT_FOUND, with
// SANDBOX_TERMINATED for a deleted sandbox, and with SANDBOX_LOST for one that has died, also during f.
func (s *Sandboxes) Use(ctx context.Context, project, id string, f func(*client.Client) error) error {
	s.mu.Lock()
	e := s.live[id]
	s.mu.Unlock()
	if e == nil {
		b, err := s.Get(ctx, project, id)
		if err != nil {
			return err
		}
		if !b.State.Over() {
			return elsewhere(b)
		}
		return notUsable(b)
	}
	e.mu.Lock()
	b := e.box
	e.mu.Unlock()
	if b.Project != project {
		return rpcerr.ResourceNotFound(resource.Format(project, "sandboxes", id))
	}
	if b.State != Ready {
		return notUsable(b)
	}
	e.busy.Add(1)
	defer func() {
		e.lastUsed.Store(time.Now().UnixNano())
		e.busy.Add(-1)
	}()
	err := f(e.client.Load())
	if err == nil {
		return nil
	}
	if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST) {
		why := "its first process is gone"
		if lost, _ := rpcerr.As(err); lost.Metadata["cause"] == driver.OutOfMemory {
			why = driver.OutOfMemory
		}
		s.lose(context.WithoutCancel(ctx), e, why)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.box.State != Ready && ctx.Err() == nil {
		return notUsable(e.box) // it ended meanwhile, which is why f failed
	}
	return err
}

// elsewhere is the error of a sandbox on a host that this process does not act on.
func elsewhere(b *Sandbox) error {
	return rpcerr.ServiceUnavailable("sandboxd", time.Second, "%s is on another host, which another sandboxd serves", b.Name())
}

// notUsable is the error of a sandbox in a state in which it cannot be used.
func notUsable(b *Sandbox) error {
	name := b.Name()
	switch b.State {
	case Creating:
		return rpcerr.ServiceUnavailable("sandboxd", time.Second, "%s is being made", name)
	case Lost:
		return rpcerr.SandboxLost(name, b.Reason, "%s is lost: %s", name, b.Reason)
	case Paused:
		return rpcerr.NotBuiltYet("use of a paused sandbox")
	case Ready, Deleting, Deleted, Failed:
	}
	message := fmt.Sprintf("%s is %s", name, b.State)
	if b.Reason != "" && b.Reason != b.State.String() {
		message += ": " + b.Reason
	}
	return rpcerr.SandboxTerminated(name, "%s; make a new one", message)
}

// connect makes the client of a sandbox's guest.
func (s *Sandboxes) connect(b *Sandbox) *client.Client {
	d := s.drivers[b.Spec.GetDriver()]
	env := map[string]string{}
	maps.Copy(env, b.Report.Env)
	maps.Copy(env, b.Spec.GetEnv())
	return client.New(client.Config{
		Connect: func(ctx context.Context) (net.Conn, error) {
			if d == nil {
				return nil, rpcerr.CapabilityUnsupported("driver", "%s is of the driver %s, which this service is not configured with", b.Name(), b.Spec.GetDriver())
			}
			return d.Connect(ctx, b.ID)
		},
		Hello: &guestv1.HelloRequest{
			Sandbox: b.Name(), Env: env, Workdir: b.Report.Workdir, User: b.Report.User, Limits: b.Spec.GetLimits(),
			Deadline: timestamppb.New(b.Deadline), OrphanTimeout: durationpb.New(s.cfg.OrphanTimeout),
		},
		BootID: b.BootID, Sandbox: b.Name(),
	})
}
