// Package effect makes keyed work happen once. An effect is a call whose repetition costs or changes something outside
// the caller: a model call, a tool call, the making of a sandbox. Its caller names it by a [Key]; the service that owns
// it claims the key in a [Ledger], does the work detached from the caller, and keeps the result under the key. Whoever
// comes again with the key, after a broken connection or a crash, attaches to that one execution.
//
// The ledger is the durable half and knows nothing of executions; the [Runner] is the half in the process and keeps
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
// A result stays until its caller has it safe and releases the key, or the run that gave the key has ended and is
// released as a whole. The mark that remains, of the key or of the run, makes a straggler with an old request fail
// instead of doing the work again; [Ledger.Expire] drops it in the end.
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
	// ErrSuperseded is what a [SupersededError] wraps.
	ErrSuperseded = errors.New("effect: the run has another owner since")
	// ErrCancelled is returned for a key that was cancelled.
	ErrCancelled = errors.New("effect: cancelled")
	// ErrReleased is returned for a key whose result was kept, taken over by its caller, and released.
	ErrReleased = errors.New("effect: result was released")
)

// SupersededError is returned to a request under an older epoch than its run has had in the ledger: the run has another
// owner since.
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

// NotStarted marks an error of the work before which nothing had happened: the [Runner] gives the claim back instead of
// keeping the error. Of nil it returns nil.
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

// How long what is over is kept, for the times given to [Ledger.Expire].
const (
	// KeepResults is for results that nobody released, and for tombstones.
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

// OfRun reports whether a run's journal gave the key: it is `{run}/{seq}` and an optional rest, for the run of that
// name. Such a key is given to one content only, also when later versions change the form of the request.
func (k Key) OfRun(name string) bool {
	id, ok := strings.CutPrefix(name, "projects/"+k.Project+"/runs/")
	return ok && id != "" && strings.HasPrefix(k.ID, id+"/")
}

// Run returns the id of the run that gave the key, for a key that a run gave.
func (k Key) Run() string {
	run, _, _ := strings.Cut(k.ID, "/")
	return run
}

// Hash tells the content of one request from another's: SHA-256 over what decides the effect, without deadline, trace
// and attribution.
type Hash [32]byte

// State says how far an effect has come. The zero value means that nothing is known of the key. The numbers are stored.
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
	// Indeterminate has lost its owner and may not be repeated; nobody knows whether it took effect.
	Indeterminate State = 5
	// Cancelled may not start any more, and the result of work that was running is not kept.
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
	// Body is the result of Done and the encoded error of Failed. It is kept as it is; bodies over 256 KiB belong into
	// a blob that the body names.
	Body []byte
}

// Record is what a ledger keeps under a key.
type Record struct {
	Key   Key
	Hash  Hash // zero for a key that was cancelled before it was claimed
	State State
	// Owner is who holds, or held last, the claim: one process from its start to its end.
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

// Lost counts the executions that brought no outcome: those that died with their owner and those that were cut short.
func (r Record) Lost() int { return r.Reissues + r.Yields }

// Ledger is the durable record of claims and results of one service. Every change is on disk before its method returns
// nil, unless the implementation says otherwise. When a method fails with an error of ctx nothing has changed. Methods
// may be called concurrently.
type Ledger interface {
	// Claim takes key for owner. started reports that the key was free and owner holds it now; else the record tells
	// what is there. It fails with [ErrContentMismatch] when the key was claimed with another hash, save that a
	// cancelled key is reported as cancelled to everyone.
	//
	// Epoch is that under which the caller owns the run that gave the key ([Key.Run]); 0 for none. It fails with a
	// [SupersededError] when it is older than one that came with a claim of the run before, with [ErrReleased] when the
	// run was released, and then changes nothing.
	Claim(ctx context.Context, key Key, hash Hash, owner string, epoch int64) (rec Record, started bool, err error)

	// Fence has the ledger know an epoch of the run that gave key, as a claim under it would. It fails with a
	// [SupersededError]. Epoch 0 changes nothing.
	Fence(ctx context.Context, key Key, epoch int64) error

	// Finish keeps the outcome of a running effect. It fails with [ErrCancelled] when the key was cancelled, which
	// stands, with [ErrUnknown] when nothing is known of it, and with [ErrNotOwner] when owner does not hold it.
	Finish(ctx context.Context, key Key, owner string, outcome Outcome) error

	// Drop gives a running claim back because nothing has happened. It fails as Finish does.
	Drop(ctx context.Context, key Key, owner string) error

	// Yield gives running claims back that owner has to cut short because it stops, and counts a yield for each. Keys
	// whose claim is not running, or not held by owner, are left alone.
	Yield(ctx context.Context, owner string, keys ...Key) error

	// Reclaim moves a running claim from one owner to another and counts a reissue. It fails with [ErrNotOwner] when
	// from no longer holds the claim, and else as Finish does.
	Reclaim(ctx context.Context, key Key, from, to string) (Record, error)

	// Cancel stores a tombstone for a key that is unknown, dropped, yielded or running. It returns what was there
	// before, with a zero State for nothing; a finished or released effect stays as it is.
	Cancel(ctx context.Context, key Key) (Record, error)

	// Lookup returns what is kept under key, or [ErrUnknown].
	Lookup(ctx context.Context, key Key) (Record, error)

	// Release drops the results of finished effects and marks the keys as released. Other keys are left alone.
	Release(ctx context.Context, keys ...Key) error

	// ReleaseRuns forgets all that is kept under the keys which the journals of runs of a project gave, as [Key.OfRun]
	// says: results and marks. Runs are ids, such as `r1`, and have ended. What is still running is cancelled, tombstones
	// stay, and a claim under an epoch that one of the runs has had, or a later one, fails with [ErrReleased]. It may be
	// repeated.
	ReleaseRuns(ctx context.Context, project string, runs ...string) error

	// Open returns the running claims of owner, or of every owner when that is empty, in the order of their first
	// claim.
	Open(ctx context.Context, owner string) ([]Record, error)

	// Expire forgets what is over and has not changed since: released marks before released, and finished, dropped,
	// yielded and cancelled effects before finished, as well as epochs of runs. Running claims stay. A zero time
	// forgets nothing. It returns the number of keys forgotten.
	Expire(ctx context.Context, finished, released time.Time) (int, error)
}
