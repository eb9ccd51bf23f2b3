package sandbox

import (
	"context"
	"errors"
	"sync"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Access is what one call may do in the sandboxes of its run. It numbers the call's commands and records its actions.
// It is safe for concurrent use, except that a second concurrent command with a key is rejected: the numbers of
// concurrent commands would depend on chance, and a retried call would mix them up.
type Access struct {
	client       sandboxv1.SandboxServiceClient
	environments map[string]string // resource names by environment
	key          func(n int) string
	attribution  *effectv1.Attribution

	mu      sync.Mutex
	execs   int
	running bool                // a command with a key
	keys    map[string][]string // by sandbox
	actions []*toolv1.SandboxAction
}

// NewAccess gives a call access to sandboxes, resource names by environment. key returns the key of the call's n-th
// command, from 1. If key is nil, commands have no keys and end with their caller.
func NewAccess(client sandboxv1.SandboxServiceClient, environments map[string]string, key func(n int) string, attribution *effectv1.Attribution) *Access {
	return &Access{client: client, environments: environments, key: key, attribution: attribution, keys: map[string][]string{}}
}

// Actions returns the recorded actions, in order.
func (a *Access) Actions() []*toolv1.SandboxAction {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.actions
}

// Release releases the results of the call's commands in the sandboxes, once the call's own result is stored. It
// returns the first failure, which only costs memory in the sandbox.
func (a *Access) Release(ctx context.Context) error {
	a.mu.Lock()
	keys := a.keys
	a.keys = map[string][]string{}
	a.mu.Unlock()
	var first error
	for sandbox, keys := range keys {
		_, err := a.client.ReleaseExec(ctx, &sandboxv1.ReleaseExecRequest{Sandbox: sandbox, RequestIds: keys})
		if err != nil && first == nil {
			first = rpcerr.Wrap(err, "release commands of %s", sandbox)
		}
	}
	return first
}

// begin returns the key of the next command, "" if commands have none, and a function to call when the command has
// ended.
func (a *Access) begin(sandbox string) (key string, end func(), err error) {
	if a.key == nil {
		return "", func() {}, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running {
		return "", nil, rpcerr.Internal("a tool runs two commands at once; their keys would depend on which comes first")
	}
	a.running = true
	a.execs++
	key = a.key(a.execs)
	a.keys[sandbox] = append(a.keys[sandbox], key)
	return key, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running = false
	}, nil
}

func (a *Access) add(action *toolv1.SandboxAction, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded): // Go's text is not for transcripts.
		action.Error = "timed out with its call"
	case errors.Is(err, context.Canceled):
		action.Error = "cancelled with its call"
	case err != nil:
		action.Error = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.actions = append(a.actions, action)
}
