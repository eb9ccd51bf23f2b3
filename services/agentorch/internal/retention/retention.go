// Package retention removes journals that were deleted or have expired, and bodies that are no longer named.
//
//	DeleteRun, DeleteEval ─┐
//	age reached ───────────┴─▶ marked in one write, and found no more ──▶ purged in small writes ──▶ bodies that no journal names are swept
//
// The mark is durable before a call is answered, and the removal continues after a crash: at the start the keeper first
// looks for journals that are marked and not purged.
package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Config sets how long data of ended runs and evaluations is kept.
type Config struct {
	// Runs is how long after its end a run that belongs to no evaluation is kept. Default 0: until it is deleted.
	Runs time.Duration `yaml:"runs" env:"EVALFLEET_RETAIN_RUNS"`
	// Evals is how long after its end an evaluation is kept, with its runs. Default 0: until it is deleted.
	Evals time.Duration `yaml:"evals" env:"EVALFLEET_RETAIN_EVALS"`
	// Bodies is how long a body (a dataset, a picture) that no run and no evaluation names is kept after it was last
	// written or read. 0 keeps all. Default 24h.
	Bodies time.Duration `yaml:"bodies" env:"EVALFLEET_RETAIN_BODIES"`
}

// SetDefaults sets the fields with a default other than zero.
func (c *Config) SetDefaults() { c.Bodies = cmp.Or(c.Bodies, 24*time.Hour) }

// minBodies is the minimum time for which a body is kept, since an upload must be named by an evaluation first.
const minBodies = time.Hour

// Validate refuses ages that would remove data in use.
func (c *Config) Validate() error {
	var faults []error
	if c.Runs < 0 {
		faults = append(faults, errors.New("runs: must not be negative; 0 keeps all"))
	}
	if c.Evals < 0 {
		faults = append(faults, errors.New("evals: must not be negative; 0 keeps all"))
	}
	if c.Bodies < 0 || c.Bodies > 0 && c.Bodies < minBodies {
		faults = append(faults, fmt.Errorf("bodies: want at least %s, so that what was uploaded lasts until it is used; 0 keeps all", minBodies))
	}
	return errors.Join(faults...)
}

// Journals is the part of the store that the keeper needs.
type Journals interface {
	journal.Deletion
	List(ctx context.Context, q journal.Query) ([]journal.Listed, error)
}

// Deps are the dependencies of the keeper.
type Deps struct {
	Journals Journals
	// Bodies is the store to sweep; nil sweeps nothing.
	Bodies Bodies
	// OwnBodies is set if the folder of bodies is the default one in the data directory, which belongs to one process.
	// Bodies from before any database's mark then belong to Journals, if there have ever been any.
	OwnBodies bool
	// CommandText returns the plain text of a command; nil takes commands as they are.
	CommandText func(journal.Command) []byte
	// Owners are the owners that store results of runs' effects, by name.
	Owners map[string]Owner
	Logger *slog.Logger
}

// Keeper deletes. Its methods are safe for concurrent use.
type Keeper struct {
	cfg  Config
	deps Deps
	wake chan struct{}

	releaseFrom time.Time // owners are not asked before, since one of them failed; only Run touches it

	kept bool // that the bodies are not swept has been logged; only Find and Run touch it
}

// New returns a keeper that does nothing until Run.
func New(cfg Config, deps Deps) *Keeper {
	return &Keeper{cfg: cfg, deps: deps, wake: make(chan struct{}, 1)}
}

// Delete deletes a run, or an evaluation with its runs, that has ended. It returns when that is durable: the resource
// can no longer be found, and its space is freed soon. It fails with RESOURCE_NOT_FOUND and with RESOURCE_IN_USE.
func (k *Keeper) Delete(ctx context.Context, name string) error {
	err := k.delete(ctx, name)
	inUse, ok := errors.AsType[*journal.InUseError](err)
	switch {
	case errors.Is(err, journal.ErrNotFound):
		return rpcerr.ResourceNotFound(name)
	case ok && errors.Is(err, journal.ErrPart):
		return rpcerr.ResourceInUse(inUse.By, "%s is part of %s; delete that, and its runs go with it", name, inUse.By)
	case ok && inUse.By != name:
		return rpcerr.ResourceInUse(inUse.By, "%s cannot be deleted while its run %s has not ended; cancel that first, or, where it has been cancelled and waits for a later version or for a fault of the server, let a server that can go on with it end it",
			name, inUse.By)
	case ok:
		return rpcerr.ResourceInUse(name, "%s has not ended; cancel it first", name)
	}
	return err
}

func (k *Keeper) delete(ctx context.Context, name string) error {
	if err := k.deps.Journals.Delete(ctx, name); err != nil {
		return err
	}
	select {
	case k.wake <- struct{}{}:
	default: // It has not looked since the last one.
	}
	return nil
}

const (
	// expireEvery is how often ages are looked at.
	expireEvery = time.Minute
	// sweepEvery is the interval of sweeps of bodies, which read all journals. After a purge, a sweep follows after
	// sweepSoon.
	sweepEvery, sweepSoon = 24 * time.Hour, 10 * time.Minute
)

// Run purges, expires and sweeps until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	expire, sweep := time.NewTimer(0), time.NewTimer(sweepEvery)
	due := time.Now().Add(sweepEvery)
	release := time.NewTicker(releaseEvery)
	defer expire.Stop()
	defer sweep.Stop()
	defer release.Stop()
	for purge := true; ; {
		if purge {
			purged, err := k.purge(ctx)
			k.tell(ctx, "cannot purge what was deleted", err)
			if soon := time.Now().Add(sweepSoon); purged && soon.Before(due) {
				due = soon
				sweep.Reset(sweepSoon)
			}
		}
		k.tell(ctx, "cannot release what is kept of runs that have ended", k.release(ctx, time.Now()))
		purge = true
		select {
		case <-release.C:
			purge = false
		case <-k.wake:
		case <-expire.C:
			k.tell(ctx, "cannot delete what is old", k.Expire(ctx, time.Now()))
			expire.Reset(expireEvery)
		case <-sweep.C:
			k.tell(ctx, "cannot sweep bodies", k.Sweep(ctx, time.Now()))
			due = time.Now().Add(sweepEvery)
			sweep.Reset(sweepEvery)
		case <-ctx.Done():
			return
		}
	}
}

func (k *Keeper) tell(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		k.deps.Logger.Error(what+"; it is tried again", "error", err)
	}
}

// purge removes marked journals, in small writes between which other writers get their turn.
func (k *Keeper) purge(ctx context.Context) (purged bool, err error) {
	for {
		more, err := k.deps.Journals.Purge(ctx)
		if err != nil || !more {
			return purged, err
		}
		purged = true
	}
}

// Expire deletes runs and evaluations that have reached their age.
func (k *Keeper) Expire(ctx context.Context, now time.Time) error {
	var errs []error
	for _, one := range []struct {
		kind journal.Kind
		keep time.Duration
	}{{journal.KindRun, k.cfg.Runs}, {journal.KindEval, k.cfg.Evals}} {
		if one.keep > 0 {
			errs = append(errs, k.expire(ctx, one.kind, now.Add(-one.keep)))
		}
	}
	return errors.Join(errs...)
}

// page is the number of journals per look, and pageBytes bounds their rows.
const (
	page      = 500
	pageBytes = 16 << 20
)

// expire deletes journals of a kind that ended before a time. Journals come by their creation, so the first that was
// made later ends the search.
func (k *Keeper) expire(ctx context.Context, kind journal.Kind, before time.Time) error {
	var (
		after journal.Ref
		errs  []error
	)
	for {
		rows, err := k.deps.Journals.List(ctx, journal.Query{Kind: kind, Roots: true, After: after, Limit: page, Bytes: pageBytes})
		if err != nil {
			return err
		}
		for _, row := range rows {
			after = row.Ref
			created, ended, err := life(row)
			if err != nil {
				errs = append(errs, err) // It is kept; the later ones are judged by themselves.
				continue
			}
			if !created.Before(before) {
				return errors.Join(errs...)
			}
			if !row.Done || ended.IsZero() || !ended.Before(before) {
				continue
			}
			switch err := k.delete(ctx, row.Name); {
			case err == nil:
				k.deps.Logger.Info("deleted what has reached its age", "name", row.Name)
			case !errors.Is(err, journal.ErrNotFound) && !errors.Is(err, journal.ErrOpen):
				return errors.Join(append(errs, err)...)
			}
		}
		if len(rows) == 0 {
			return errors.Join(errs...)
		}
	}
}

// life reads when a row's journal was made and when it ended.
func life(row journal.Listed) (created, ended time.Time, err error) {
	var timed interface {
		proto.Message
		times
	} = &agentv1.Run{}
	if row.Kind == journal.KindEval {
		timed = &agentv1.Eval{}
	}
	if err := proto.Unmarshal(row.View, timed); err != nil {
		return created, ended, fmt.Errorf("read the row of %s: %w", row.Name, err)
	}
	if timed.GetEndTime() != nil {
		ended = timed.GetEndTime().AsTime()
	}
	return timed.GetCreateTime().AsTime(), ended, nil
}
