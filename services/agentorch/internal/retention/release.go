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

// Owner drops the stored results of effects of a project's ended runs. Runs are names. It is idempotent.
type Owner func(ctx context.Context, parent string, runs []string) error

const (
	// releaseTimeout bounds one call of an owner.
	releaseTimeout = 10 * time.Second
	// releasePause is the time between two attempts if an owner fails.
	releasePause = time.Minute
	// releaseEvery is how often runs are looked for that have ended.
	releaseEvery = 2 * time.Second
)

// release asks the owners to drop the results of runs that have ended or were deleted, including those from before this
// process began. A run is forgotten when all owners have done so, or when their results have expired. An owner that
// fails is not called again in the same pass; the others are.
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

// ask calls each owner that has not failed, project by project, and adds the owners that fail.
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
