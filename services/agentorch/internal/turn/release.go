package turn

import (
	"context"
	"sync"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// release is a result that its owner may forget, since it is in the journal.
type release struct {
	parent string
	// key is the request's.
	key string
	// calls are the ids of its tool calls; nil for a model call or an exec.
	calls []string
	// sandbox is where an exec ran.
	sandbox string
	// worker says that a worker answered; parent is then the project's id.
	worker bool
}

// releaser tells owners in batches, off the path of the runs. What is lost with the process expires with the owners.
type releaser struct {
	deps Deps

	mu      sync.Mutex
	pending []release
}

// maxReleases bounds what waits; the rest is left to expire.
const maxReleases = 100_000

func newReleaser(deps Deps) *releaser { return &releaser{deps: deps} }

func (r *releaser) add(one release) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) < maxReleases {
		r.pending = append(r.pending, one)
	}
}

// releaseBatch bounds the keys of one call.
const releaseBatch = 500

// flush tells the owners. A failure is not repeated.
func (r *releaser) flush(ctx context.Context) {
	r.mu.Lock()
	pending := r.pending
	r.pending = nil
	r.mu.Unlock()
	models, execs, asked := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, p := range pending {
		switch {
		case p.worker:
			asked[p.parent] = append(asked[p.parent], p.key)
		case p.calls != nil:
			_, _ = r.deps.Tools.ReleaseTools(ctx, &toolv1.ReleaseToolsRequest{Parent: p.parent, RequestId: p.key, CallIds: p.calls})
		case p.sandbox != "":
			execs[p.sandbox] = append(execs[p.sandbox], p.key)
		default:
			models[p.parent] = append(models[p.parent], p.key)
		}
	}
	for project, keys := range asked {
		_ = r.deps.Workers.Release(ctx, project, keys)
	}
	for parent, keys := range models {
		for len(keys) > 0 {
			n := min(len(keys), releaseBatch)
			_, _ = r.deps.Models.ReleaseGenerate(ctx, &modelv1.ReleaseGenerateRequest{Parent: parent, RequestIds: keys[:n]})
			keys = keys[n:]
		}
	}
	for sandbox, keys := range execs {
		_, _ = r.deps.Sandboxes.ReleaseExec(ctx, &sandboxv1.ReleaseExecRequest{Sandbox: sandbox, RequestIds: keys})
	}
}
