package turn

import (
	"context"
	"maps"
	"slices"
	"strings"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// setBoxes notes the sandboxes that the run uses, waiting included.
func (a *actor) setBoxes(s *run.State) {
	var boxes []string
	for _, box := range s.Sandboxes {
		if !box.Removed && !s.Finished {
			boxes = append(boxes, box.Name)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.boxes = boxes
}

// renewLeases renews the leases of all runs' sandboxes, one call a project.
func (e *Engine) renewLeases(ctx context.Context) {
	byProject := map[string][]string{}
	e.mu.Lock()
	actors := slices.Collect(maps.Values(e.actors))
	e.mu.Unlock()
	for _, a := range actors {
		a.mu.Lock()
		for _, box := range a.boxes {
			project, _, _ := strings.Cut(box, "/sandboxes/")
			byProject[project] = append(byProject[project], box)
		}
		a.mu.Unlock()
	}
	for project, boxes := range byProject {
		answer, err := e.deps.Sandboxes.RenewLeases(ctx, &sandboxv1.RenewLeasesRequest{Parent: project, Sandboxes: boxes})
		if err != nil && ctx.Err() == nil {
			e.deps.Logger.Warn("cannot renew leases of sandboxes", "project", project, "sandboxes", len(boxes), "error", err)
		}
		if missing := answer.GetMissing(); len(missing) > 0 {
			e.deps.Logger.Warn("sandboxes of runs are gone", "project", project, "missing", len(missing))
		}
	}
}
