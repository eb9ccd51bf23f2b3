package servicetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Sandboxes is a sandbox service. Its other methods panic.
type Sandboxes struct {
	sandboxv1.SandboxServiceClient
	Ledger

	// Run executes a command. It may block until ctx ends.
	Run func(ctx context.Context, r *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error)
	// Refuse, if set, may refuse to create a sandbox.
	Refuse func(*sandboxv1.CreateSandboxRequest) error
	// Hold, if set, is called while a sandbox is created. It may block until ctx ends.
	Hold func(ctx context.Context)
	// Away is the number of calls to renew leases that get no answer.
	Away atomic.Int32

	mu      sync.Mutex
	made    int
	alive   map[string]bool
	byKey   map[string]string // names
	renewed map[string]int
}

// CreateSandbox implements the client.
func (s *Sandboxes) CreateSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest, _ ...grpc.CallOption) (*sandboxv1.Sandbox, error) {
	if r.GetValidateOnly() {
		return &sandboxv1.Sandbox{Spec: r.GetSpec()}, check(r.GetSpec())
	}
	content := proto.CloneOf(r)
	content.Attribution = nil
	content.Timeout = nil
	key := keyOf(r.GetParent(), r.GetRequestId())
	made, err := s.do(ctx, key, content, func(ctx context.Context) (any, error) {
		if s.Refuse != nil {
			if err := s.Refuse(r); err != nil {
				return nil, err
			}
		}
		if s.Hold != nil {
			s.Hold(ctx)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.made++
		name := fmt.Sprintf("%s/sandboxes/s%d", r.GetParent(), s.made)
		if s.alive == nil {
			s.alive, s.byKey, s.renewed = map[string]bool{}, map[string]string{}, map[string]int{}
		}
		s.alive[name], s.byKey[key] = true, name
		return &sandboxv1.Sandbox{Name: name, Spec: proto.CloneOf(r.GetSpec()), State: sandboxv1.SandboxState_SANDBOX_STATE_READY, Timing: &effectv1.Timing{Working: durationpb.New(time.Second), Attempts: 1}}, nil
	})
	if err != nil {
		return nil, err
	}
	box, _ := made.(*sandboxv1.Sandbox)
	return proto.CloneOf(box), nil
}

// CancelSandbox implements the client. Nothing is left of a making that it stops.
func (s *Sandboxes) CancelSandbox(_ context.Context, r *sandboxv1.CancelSandboxRequest, _ ...grpc.CallOption) (*sandboxv1.CancelSandboxResponse, error) {
	key := keyOf(r.GetParent(), r.GetRequestId())
	done := s.cancel(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !done {
		delete(s.alive, s.byKey[key])
	}
	return &sandboxv1.CancelSandboxResponse{AlreadyDone: done}, nil
}

// check reports whether a sandbox could be created: the driver local works here, docker does not.
func check(spec *sandboxv1.SandboxSpec) error {
	switch driver := spec.GetDriver(); {
	case driver == "docker":
		return rpcerr.EngineUnavailable(driver, "unix:///no.sock", time.Second, "no socket; start dockerd")
	case driver != "" && driver != "local":
		return rpcerr.In("spec", rpcerr.DriverNotFound(driver, []string{"docker", "local"}))
	case spec.GetImage() != "":
		return rpcerr.In("spec.image", rpcerr.CapabilityUnsupported("images", "the local driver has no images"))
	}
	return nil
}

// DeleteSandbox implements the client.
func (s *Sandboxes) DeleteSandbox(_ context.Context, r *sandboxv1.DeleteSandboxRequest, _ ...grpc.CallOption) (*sandboxv1.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.alive[r.GetName()] {
		return nil, rpcerr.ResourceNotFound(r.GetName())
	}
	delete(s.alive, r.GetName())
	return &sandboxv1.Sandbox{Name: r.GetName(), State: sandboxv1.SandboxState_SANDBOX_STATE_DELETED}, nil
}

// RenewLeases implements the client.
func (s *Sandboxes) RenewLeases(_ context.Context, r *sandboxv1.RenewLeasesRequest, _ ...grpc.CallOption) (*sandboxv1.RenewLeasesResponse, error) {
	if s.Away.Add(-1) >= 0 {
		return nil, rpcerr.ServiceUnavailable("sandboxd", time.Second, "starting")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &sandboxv1.RenewLeasesResponse{}
	for _, name := range r.GetSandboxes() {
		if !s.alive[name] {
			answer.Missing = append(answer.Missing, name)
			continue
		}
		s.renewed[name]++
	}
	return answer, nil
}

// Exec implements the client.
func (s *Sandboxes) Exec(ctx context.Context, r *sandboxv1.ExecRequest, _ ...grpc.CallOption) (*sandboxv1.ExecResponse, error) {
	content := proto.CloneOf(r)
	content.Attribution = nil
	done, err := s.do(ctx, keyOf(r.GetSandbox(), r.GetRequestId()), content, func(ctx context.Context) (any, error) { return s.Run(ctx, r) })
	if err != nil {
		return nil, err
	}
	result, _ := done.(*sandboxv1.ExecResult)
	return &sandboxv1.ExecResponse{Result: proto.CloneOf(result)}, nil
}

// CancelExec implements the client.
func (s *Sandboxes) CancelExec(_ context.Context, r *sandboxv1.CancelExecRequest, _ ...grpc.CallOption) (*sandboxv1.CancelExecResponse, error) {
	return &sandboxv1.CancelExecResponse{AlreadyDone: s.cancel(keyOf(r.GetSandbox(), r.GetRequestId()))}, nil
}

// ReleaseExec implements the client.
func (s *Sandboxes) ReleaseExec(_ context.Context, r *sandboxv1.ReleaseExecRequest, _ ...grpc.CallOption) (*sandboxv1.ReleaseExecResponse, error) {
	if err := s.deaf(); err != nil {
		return nil, err
	}
	for _, id := range r.GetRequestIds() {
		s.release(keyOf(r.GetSandbox(), id))
	}
	return &sandboxv1.ReleaseExecResponse{}, nil
}

// ReleaseRunSandboxes implements the client.
func (s *Sandboxes) ReleaseRunSandboxes(_ context.Context, r *sandboxv1.ReleaseRunSandboxesRequest, _ ...grpc.CallOption) (*sandboxv1.ReleaseRunSandboxesResponse, error) {
	if err := s.deaf(); err != nil {
		return nil, err
	}
	for _, run := range r.GetRuns() {
		s.releaseAll(keyOf(r.GetParent(), run[strings.LastIndex(run, "/")+1:]+"/"))
	}
	return &sandboxv1.ReleaseRunSandboxesResponse{}, nil
}

// ListDrivers implements the client: local works here, docker does not.
func (s *Sandboxes) ListDrivers(context.Context, *sandboxv1.ListDriversRequest, ...grpc.CallOption) (*sandboxv1.ListDriversResponse, error) {
	return &sandboxv1.ListDriversResponse{Drivers: []*sandboxv1.Driver{
		{Name: "local", IsDefault: true, Available: true}, {Name: "docker", Problem: "no socket; start dockerd"},
	}}, nil
}

// Alive returns the sandboxes that were not deleted.
func (s *Sandboxes) Alive() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.alive {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Made returns how many sandboxes were made.
func (s *Sandboxes) Made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Renewed returns how often a sandbox's lease was renewed.
func (s *Sandboxes) Renewed(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed[name]
}
