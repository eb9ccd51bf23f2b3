package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Owner drops what it keeps of runs of a project that have ended: results of their effects. Runs are names. It may be
// asked again for the same.
type Owner func(ctx context.Context, parent string, runs []string) error

const (
	// releaseTimeout bounds one call of an owner.
	releaseTimeout = 10 * time.Second
	// releasePause is the time between two attempts where an owner fails.
	releasePause = time.Minute
	// releaseEvery is how often runs are looked for that have ended.
	releaseEvery = 2 * time.Second
)

// release has the owners drop what they keep of runs that have ended or were deleted, also where that was before this
// process began. A run is forgotten when all have done so, or when what
// they kept of it has expired there. An owner that fails is not asked again in the same pass; the others are.
func (k *Keeper) release(ctx context.Context, now time.Time) error {
	if now.Before(k.releaseFrom) {
		return nil
	}
	failed := map[string]error{}
	var after journal.Ref
	for {
		runs, err := k.deps.Journals.Unreleased(ctx, after, page)
		if err != nil {
			return err
		}
		if len(runs) == 0 {
			break
		}
		after = runs[len(runs)-1].Ref
		k.ask(ctx, runs, failed)
		var over []journal.Ref
		for _, run := range runs {
			if len(failed) == 0 || run.At.Before(now.Add(-effect.KeepResults)) {
				over = append(over, run.Ref)
			}
		}
		if len(over) > 0 {
			if err := k.deps.Journals.Released(ctx, over...); err != nil {
				return err
			}
		}
	}
	if len(failed) > 0 {
		k.releaseFrom = now.Add(releasePause)
	}
	return errors.Join(slices.Collect(maps.Values(failed))...)
}

// ask asks each owner that has not failed, project by project, and adds those that fail.
func (k *Keeper) ask(ctx context.Context, runs []journal.Unreleased, failed map[string]error) {
	projects := map[string][]string{}
	for _, run := range runs {
		if name, err := resource.Parse("name", run.Name, "runs"); err == nil {
			parent := resource.Format(name.Project)
			projects[parent] = append(projects[parent], run.Name)
		}
	}
	for owner, drop := range k.deps.Owners {
		for parent, names := range projects {
			if failed[owner] != nil {
				break
			}
			ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
			if err := drop(ctx, parent, names); err != nil {
				failed[owner] = fmt.Errorf("%s: %w", owner, err)
			}
			cancel()
		}
	}
}
