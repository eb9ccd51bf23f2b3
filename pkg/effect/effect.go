// Package effect makes keyed work happen once. An effect is a call whose repetition costs or changes something outside
// the caller: a model call, a tool call, the creation of a sandbox. Its caller names it by a [Key]; the service that
// owns it claims the key in a [Ledger], does the work detached from the caller, and stores the result under the key. A
// later call with the key, after a broken connection or a crash, attaches to that one execution.
//
// The ledger is the durable half and knows nothing of executions; the [Runner] is the half in the process and stores
// nothing beyond it. The states of a key:
//
//	(none) ────Claim───▶ Running ────Finish───▶ Done | Failed | Indeterminate ────Release───▶ Released
//	   │                 ▲  │ ▲ │
//	   │           Claim │  │ └─┘ Reclaim: another owner, one reissue more
//	   │                 │  │
//	   │       Dropped ──┤◀─┤ Drop: nothing has happened
//	   │       Yielded ──┘◀─┤ Yield: cut short by a graceful stop, which counts as no reissue
//	   │          │         │
//	   └──────────┴─────────┴─────Cancel───▶ Cancelled (a tombstone)
//
// A result is kept until its caller has stored it and releases the key, or the run that issued the key has ended and is
// released as a whole. The mark that remains, of the key or of the run, makes a late request fail instead of repeating
// the work; [Ledger.Expire] finally drops the mark.
package effect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrInvalidKey is returned for a key without a project or an id, or with an id longer than [MaxIDBytes].
	ErrInvalidKey = errors.New("effect: invalid key")
	// ErrContentMismatch is returned when a key is used again for other content.
	ErrContentMismatch = errors.New("effect: key was used for other content")
	// ErrUnknown is returned for a key under which nothing is kept.
	ErrUnknown = errors.New("effect: unknown key")
	// ErrNotOwner is returned to an owner that does not, or no longer, hold the claim.
	ErrNotOwner = errors.New("effect: claim is not held by this owner")
	// ErrSuperseded is wrapped by a [SupersededError].
	ErrSuperseded = errors.New("effect: the run has another owner since")
	// ErrCancelled is returned for a key that was cancelled.
	ErrCancelled = errors.New("effect: cancelled")
	// ErrReleased is returned for a key whose result was kept, taken over by its caller, and released.
	ErrReleased = errors.New("effect: result was released")
)

// SupersededError is the error for a request under an older epoch than its run has had in the ledger: the run has a
// newer owner.
type SupersededError struct {
	Key Key
	// Epoch is the newest that the ledger has of the run.
	Epoch int64
}

// Error implements error.
func (e *SupersededError) Error() string {
	return fmt.Sprintf("%v: %v: its epoch is %d", ErrSuperseded, e.Key, e.Epoch)
}

// Unwrap returns [ErrSuperseded].
func (e *SupersededError) Unwrap() error { return ErrSuperseded }

// NotStarted marks an error of work that had no effect yet: the [Runner] gives the claim back instead of storing the
// error. Of nil it returns nil.
func NotStarted(err error) error {
	if err == nil {
		return nil
	}
	return &notStartedError{err}
}

// IsNotStarted reports whether an error, or one that it wraps, was marked by [NotStarted].
func IsNotStarted(err error) bool {
	_, ok := errors.AsType[*notStartedError](err)
	return ok
}

type notStartedError struct{ error }

func (e *notStartedError) Unwrap() error { return e.error }

// MaxIDBytes bounds the id of a key.
const MaxIDBytes = 128

// How long ended effects are kept, for the times passed to [Ledger.Expire].
const (
	// KeepResults applies to results that were not released, and to tombstones.
	KeepResults = 7 * 24 * time.Hour
	// KeepReleased is for the marks of released results: longer than a caller that has lost its run can linger.
	KeepReleased = 15 * time.Minute
)

// Key names one effect within a project. Keys of two projects never meet.
type Key struct {
	Project string
	ID      string
}

// IsZero reports whether k names nothing, which means that the caller wants no effect kept.
func (k Key) IsZero() bool { return k == Key{} }

// String returns the project and the id, for messages.
func (k Key) String() string { return k.Project + "/" + k.ID }

// Validate returns [ErrInvalidKey] with the reason, or nil.
func (k Key) Validate() error {
	switch {
	case k.Project == "":
		return fmt.Errorf("%w: no project", ErrInvalidKey)
	case k.ID == "":
		return fmt.Errorf("%w: no id", ErrInvalidKey)
	case len(k.ID) > MaxIDBytes:
		return fmt.Errorf("%w: id has %d bytes, at most %d are allowed", ErrInvalidKey, len(k.ID), MaxIDBytes)
	}
	return nil
}

// OfRun reports whether a run's journal issued the key: it is `{run}/{seq}` and an optional rest, for the run of that
// name. Such a key is issued for one content only, also when later versions change the form of the request.
func (k Key) OfRun(name string) bool {
	id, ok := strings.CutPrefix(name, "projects/"+k.Project+"/runs/")
	return ok && id != "" && strings.HasPrefix(k.ID, id+"/")
}

// Run returns the id of the run that gave the key, for a key that a run gave.
func (k Key) Run() string {
	run, _, _ := strings.Cut(k.ID, "/")
	return run
}

// Hash distinguishes the contents of requests: SHA-256 over what determines the effect, without deadline, trace and
// attribution.
type Hash [32]byte

// State is the state of an effect. The zero value means that the key is unknown. The numbers are stored.
type State uint8

const (
	// Running is claimed by an owner that has not brought a result yet.
	Running State = 1
	// Dropped is given back before anything happened; the next claim gets it.
	Dropped State = 2
	// Done has succeeded, and its result is kept.
	Done State = 3
	// Failed has failed, and the failure is its result.
	Failed State = 4
	// Indeterminate has lost its owner and may not be repeated; it is unknown whether it took effect.
	Indeterminate State = 5
	// Cancelled may no longer start, and the result of work that was running is not stored.
	Cancelled State = 6
	// Released had a result that is no longer needed.
	Released State = 7
	// Yielded was cut short by the graceful stop of its owner, and may have taken effect in part; the next claim gets
	// it.
	Yielded State = 8
)

// Finished reports whether s holds an outcome that may be attached to.
func (s State) Finished() bool { return s == Done || s == Failed || s == Indeterminate }

// String returns the name of the state in lower case.
func (s State) String() string {
	names := [...]string{"none", "running", "dropped", "done", "failed", "indeterminate", "cancelled", "released", "yielded"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Outcome is how an effect ended.
type Outcome struct {
	// State is Done, Failed or Indeterminate.
	State State
	// Body is the result of Done and the encoded error of Failed. It is stored as it is; bodies over 256 KiB belong in
	// a blob that the body names.
	Body []byte
}

// Record is a ledger's record of a key.
type Record struct {
	Key   Key
	Hash  Hash // zero for a key that was cancelled before it was claimed
	State State
	// Owner is the present or the last holder of the claim: one process from its start to its end.
	Owner string
	// Reissues counts how often the claim of a dead owner was taken over to do the work again.
	Reissues int
	// Yields counts how often an owner gave the claim back because it had to stop while the work ran.
	Yields int
	// Body is the outcome's. Callers must not change it.
	Body []byte
	// Claimed is when the key was claimed first, or cancelled unseen; Changed is when it entered its state.
	Claimed, Changed time.Time
}

// Lost counts the executions without an outcome: those that died with their owner and those that were cut short.
func (r Record) Lost() int { return r.Reissues + r.Yields }

// Ledger is the durable record of claims and results of one service. Every change is on disk before its method returns
// nil, unless the implementation documents otherwise. If a method fails with an error of ctx nothing has changed. Its
// methods are safe for concurrent use.
type Ledger interface {
	// Claim claims key for owner. started reports that the key was free and owner holds it now; else the record is the
	// present state. It fails with [ErrContentMismatch] if the key was claimed with another hash, except that a
	// cancelled key is reported as cancelled to every caller.
	//
	// Epoch is the one under which the caller owns the run that issued the key ([Key.Run]); 0 for none. Claim fails
	// with a [SupersededError] if it is older than one of an earlier claim of the run, with [ErrReleased] if the run
	// was released, and then changes nothing.
	Claim(ctx context.Context, key Key, hash Hash, owner string, epoch int64) (rec Record, started bool, err error)

	// Fence records an epoch of the run that issued key in the ledger, as a claim under it would. It fails with a
	// [SupersededError]. Epoch 0 changes nothing.
	Fence(ctx context.Context, key Key, epoch int64) error

	// Finish stores the outcome of a running effect. It fails with [ErrCancelled] if the key was cancelled, which
	// remains so, with [ErrUnknown] if the key is unknown, and with [ErrNotOwner] if owner does not hold it.
	Finish(ctx context.Context, key Key, owner string, outcome Outcome) error

	// Drop gives a running claim back because nothing has happened. It fails as Finish does.
	Drop(ctx context.Context, key Key, owner string) error

	// Yield gives back running claims that owner has to cut short because it stops, and counts a yield for each. Keys
	// whose claim is not running, or not held by owner, are unchanged.
	Yield(ctx context.Context, owner string, keys ...Key) error

	// Reclaim moves a running claim from one owner to another and counts a reissue. It fails with [ErrNotOwner] when
	// from no longer holds the claim, and else as Finish does.
	Reclaim(ctx context.Context, key Key, from, to string) (Record, error)

	// Cancel stores a tombstone for a key that is unknown, dropped, yielded or running. It returns the previous record,
	// with a zero State if there was none; a finished or released effect is unchanged.
	Cancel(ctx context.Context, key Key) (Record, error)

	// Lookup returns the record of key, or [ErrUnknown].
	Lookup(ctx context.Context, key Key) (Record, error)

	// Release drops the results of finished effects and marks the keys as released. Other keys are left alone.
	Release(ctx context.Context, keys ...Key) error

	// ReleaseRuns deletes everything stored under the keys that the journals of runs of a project issued, as
	// [Key.OfRun] reports: results and marks. Runs are ids, such as `r1`, and have ended. Running effects are
	// cancelled, tombstones stay, and a claim under an epoch that one of the runs has had, or a later one, fails with
	// [ErrReleased]. It is idempotent.
	ReleaseRuns(ctx context.Context, project string, runs ...string) error

	// Open returns the running claims of owner, or of every owner when that is empty, in the order of their first
	// claim.
	Open(ctx context.Context, owner string) ([]Record, error)

	// Expire deletes ended effects that have not changed since a time: released marks before released, and finished,
	// dropped, yielded and cancelled effects before finished, as well as epochs of runs. Running claims stay. A zero
	// time deletes nothing. It returns the number of deleted keys.
	Expire(ctx context.Context, finished, released time.Time) (int, error)
}
