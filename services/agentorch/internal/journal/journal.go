// Package journal is the port to the journals: fenced, append-only logs of events, one per run and per eval.
//
// A journal is the single source of truth about its run. Everything else, such as the list of runs, is a projection
// ([Row]) that is written in the same transaction; [Store.Rebuild] can recreate it from the journals. A journal has one
// owner at a time; each change of owner raises its epoch, and an append must name the epoch and the sequence number
// that it follows:
//
//	append {epoch 3, after 17, events 18…20} ──▶ head is 17 and epoch is 3? ──▶ durable, head 20 ──▶ watchers wake
//	                                                    └─ no ──▶ [FencedError], with the head as it is
//
// So a replica that was presumed dead and returns cannot write, and a repeated append cannot duplicate events.
//
// A [Store] also holds the inbox of each journal: commands of operators, kept until an event answers them. Its methods
// are safe for concurrent use.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

var (
	// ErrFenced is the error of an append by a replica that no longer owns the journal, or that does not know its last
	// event, for example because its last append became durable although it returned an error. [FencedError] tells the
	// two apart.
	ErrFenced = errors.New("journal: owned by another under a newer epoch, or its head moved")
	// ErrNotFound is the error if no journal has the name.
	ErrNotFound = errors.New("journal: not found")
	// ErrReused is the error if a request id or a command id was used before with other content.
	ErrReused = errors.New("journal: id used before with other content")
	// ErrOpen is the error if a journal cannot be deleted because it, or one of its children, is not done.
	ErrOpen = errors.New("journal: not done")
	// ErrUnreadable is the error if the stored form of an event cannot be decoded: the database is damaged.
	ErrUnreadable = errors.New("journal: an event cannot be read")
	// ErrPart is the error if a journal cannot be deleted because its parent is kept.
	ErrPart = errors.New("journal: part of one that is kept")
)

// Gone gives the error of a read the kind NOT_FOUND if the journal of that name was deleted in the meantime, and
// returns other errors unchanged.
func Gone(err error, name string) error {
	if errors.Is(err, ErrNotFound) {
		return rpcerr.ResourceNotFound(name)
	}
	return err
}

// RowError is the error in the row of a journal that cannot be read.
func RowError() *agentv1.RunError {
	return &agentv1.RunError{
		Reason:  rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_INTERNAL),
		Message: "its journal cannot be read; the server's log has the cause",
	}
}

// InUseError is the reason why a journal cannot be deleted. It wraps [ErrOpen] or [ErrPart].
type InUseError struct {
	// By is the journal that is open or kept.
	By string
	// Why is ErrOpen or ErrPart.
	Why error
}

// Error names the journal.
func (e *InUseError) Error() string { return e.Why.Error() + ": " + e.By }

// Unwrap returns why.
func (e *InUseError) Unwrap() error { return e.Why }

// FencedError holds the head of a journal that refused an append. It wraps [ErrFenced].
type FencedError struct {
	// Now is the head of the journal; zero if the journal no longer exists.
	Now Head
}

// Error names the owner.
func (e *FencedError) Error() string {
	if e.Now == (Head{}) {
		return ErrFenced.Error() + ": it is gone"
	}
	return fmt.Sprintf("%v: %s is at %d of epoch %d, owned by %s", ErrFenced, e.Now.Name, e.Now.Seq, e.Now.Epoch, e.Now.Owner)
}

// Unwrap returns ErrFenced.
func (e *FencedError) Unwrap() error { return ErrFenced }

// Store keeps journals. See the package comment.
type Store interface {
	Journals
	Owners
	Inbox
	Index
	Deletion
}

// Journals creates, appends to and reads journals.
type Journals interface {
	// Create creates a journal with its first events and returns its head. It fails with [ErrNotFound] if Creation.Base
	// does not exist. If the same request created a journal before, Create returns that journal's head and created is
	// false; with other content it fails with [ErrReused].
	Create(ctx context.Context, c Creation) (head Head, created bool, err error)
	// Append adds events, and letters to the inboxes of other journals, and returns when they are durable. If it fails
	// with a [FencedError], nothing has changed. Letters to journals that do not exist are dropped. An event of more
	// than [bound.JournalEventBytes] is refused with REQUEST_TOO_LARGE, and nothing is changed. After any other error
	// the append may still be durable: only the journal shows it. An unreachable store gives an error of the kind
	// UNAVAILABLE (STORE_UNAVAILABLE).
	Append(ctx context.Context, a Append) error
	// Open returns the head of a journal, or [ErrNotFound].
	Open(ctx context.Context, name string) (Head, error)
	// Read returns events in order; if the journal has a base, the events of the base come first. A page may be shorter
	// than requested; it is empty only at the end. Read fails with [ErrUnreadable] if its first event cannot be read,
	// and otherwise ends before such an event.
	Read(ctx context.Context, ref Ref, r Range) ([]*agentv1.Event, error)
	// Subscribe wakes the subscriber after every append to the journal of that name and after every change of a [Row]
	// whose Parent it is. With the name of a project (`projects/{project}`) it wakes the subscriber after every change
	// that [Index.Changed] returns for it. Wake-ups are hints: several may be merged into one, and only the store shows
	// what is new.
	Subscribe(topic string) *Subscription
}

// Owners moves journals between replicas. It keeps no time: the caller decides which replicas live.
type Owners interface {
	// Load returns the number of open journals per owner. The empty owner has those that no replica has claimed yet.
	Load(ctx context.Context) (map[string]int, error)
	// Resume raises the epochs of all open journals of a replica, in one write, so that an earlier process of the
	// replica can no longer append. It returns the newest existing journal; journals that the replica creates from then
	// on have higher refs. [Index.List] with Query.Owner returns the journals.
	Resume(ctx context.Context, replica string) (newest Ref, err error)
	// Claim assigns open journals to a replica and raises their epochs: the oldest journals whose owner is not alive,
	// or that have none. Concurrent claims get different journals.
	Claim(ctx context.Context, c Claim) ([]Listed, error)
	// Take assigns a journal, open or not, to a replica and raises its epoch, above another one. If head's epoch is not
	// that of the journal, it fails with a [FencedError] and changes nothing.
	Take(ctx context.Context, head Head, replica string, above int64) (Head, error)
	// Owned returns the open journals that a replica owns, in order.
	Owned(ctx context.Context, replica string) ([]Ref, error)
}

// Inbox stores commands until the owner of a journal has applied them.
type Inbox interface {
	// Post puts a command into a journal's inbox and returns when it is durable. It is idempotent by id; the same id
	// with another body fails with [ErrReused]. It fails with [ErrNotFound] if the journal does not exist.
	Post(ctx context.Context, name string, c Command) error
	// Pending returns the commands that no event has answered yet, oldest first.
	Pending(ctx context.Context, ref Ref) ([]Command, error)
	// Taken returns the sequence number of the event that answered a command, or 0 if none has yet.
	Taken(ctx context.Context, name, id string) (int64, error)
	// Mail returns the open journals of an owner that have commands no event has answered yet.
	Mail(ctx context.Context, owner string) ([]Mailbox, error)
}

// Index lists journals by their rows.
type Index interface {
	// List returns journals that match, newest first; with Query.Open oldest first.
	List(ctx context.Context, q Query) ([]Listed, error)
	// Changed returns journals of a project in the order of the last change of their states or waits, and the newest
	// change of all projects, both as of the same moment. A change becomes visible only after all changes before it.
	Changed(ctx context.Context, q ChangeQuery) (page []Listed, newest Change, err error)
	// Waits returns the waits of the journals below a parent, ordered by reason.
	Waits(ctx context.Context, parent string) ([]Wait, error)
	// Rebuild recreates all rows. Fold returns the row of a journal from all its events, which are read on demand. If
	// fold fails with [ErrUnreadable], Rebuild stores the row that it returned, and the journal stays open or done as
	// it was.
	Rebuild(ctx context.Context, fold func(head Head, events iter.Seq2[*agentv1.Event, error]) (Row, error)) error
}

// Deletion removes journals that are done, in two steps: a mark that is durable at once, and the removal, which may be
// restarted at any time.
type Deletion interface {
	// Delete marks a journal and all journals whose parent it is. From then on the journal cannot be found by its name
	// or its request, is not listed and accepts no append; the children follow. If it fails with [ErrNotFound] or an
	// [InUseError], nothing has changed.
	Delete(ctx context.Context, name string) error
	// Purge removes some of the marked data: events, contents that no other event has, commands. It reports whether
	// there was any.
	Purge(ctx context.Context) (more bool, err error)
	// Unreleased returns runs that have ended or were deleted and whose results owners of effects may still store, in
	// the order of their refs, after one. A run is included from the append that ends it.
	Unreleased(ctx context.Context, after Ref, limit int) ([]Unreleased, error)
	// Released forgets runs of which no owner of effects keeps results any more. It ignores unknown refs.
	Released(ctx context.Context, refs ...Ref) error
	// Identity returns the random id of the store, which never changes, and whether there has ever been a journal in
	// it.
	Identity(ctx context.Context) (id string, used bool, err error)
	// Texts calls each with all texts in the journals, event by event and content by content, in an order of its own,
	// and returns the end position: texts that are appended in the meantime may come after it. A content that cannot be
	// unpacked is passed in its stored form. It starts after a position that it returned before; the zero Place is the
	// beginning.
	Texts(ctx context.Context, after Place, each func(text []byte) error) (Place, error)
	// Commands calls each with the commands of all journals that no event has answered yet.
	Commands(ctx context.Context, each func(Command) error) error
}

// Place is a position in the whole content of a store, in its own numbers.
type Place struct{ Events, Contents int64 }

// Unreleased is a run whose results owners of effects may still store.
type Unreleased struct {
	Ref  Ref
	Name string // its former name, if it was deleted
	// At is when it ended, or was deleted.
	At time.Time
}

// Ref is a store's own number of a journal. Journals made later have higher ones.
type Ref int64

// Head is the position of a journal: its owner, its epoch and its last event.
type Head struct {
	Ref   Ref
	Name  string // `projects/{project}/runs/{run}` or `projects/{project}/evals/{eval}`
	Seq   int64  // sequence number of the last event
	Epoch int64  // raised with every change of owner
	Owner string // the replica; empty if no replica has claimed it
}

// Entry is one event to append.
type Entry struct {
	// Event has its sequence number set; the store sets journal and epoch when the event is read. It is not changed.
	Event *agentv1.Event
	// Same is the sequence number of an earlier event of the journal, possibly of the same append, that holds the same
	// content as this event: the message that a MessageAdded adds ([MessageOf]), or the call in such a message that a
	// ToolIntent begins. The content is then stored once. 0 means that there is none.
	Same int64
}

// Creation is a journal to be made.
type Creation struct {
	Name string
	// Owner is the replica that drives it; empty for any that claims it.
	Owner   string
	Entries []Entry
	Row     Row
	// Request is the key of the creating request, unique over all projects and methods; empty if there is none.
	Request string
	// Digest is a hash of that request's content; empty if the request's key alone identifies it.
	Digest []byte
	// Base is the journal's base; zero if it has none.
	Base Base
	// Under is the journal that this one is a part of, as its owner knows it. Creation fails with a [FencedError] with
	// the head of that journal if it is closed or has another epoch, unless the request was answered before. The zero
	// value checks nothing.
	Under Head
}

// Base is a position in another journal of the same project, which may be open. A journal with a base has the events up
// to that position as its own, under its own name, and continues after them. They are stored once. They outlive the
// deletion of the other journal, until the last journal with that base is gone. Entries.Same may name them.
type Base struct {
	Ref Ref
	// Seq is the last event that both journals share; from 1 to the base's last.
	Seq int64
}

// Append is an addition to a journal.
type Append struct {
	// Head is the journal's head as its owner knows it: ref, name, last sequence number and epoch. The events follow it
	// without a gap.
	Head    Head
	Entries []Entry
	// Row replaces the journal's row; nil leaves it as it is.
	Row *Row
	// Took names the inbox commands that these events answer.
	Took []string
	// Tell are letters to other journals.
	Tell []Letter
}

// Letter is a command from one journal to another. It is in the inbox exactly if the append that sends it is durable.
// It is idempotent by id.
type Letter struct {
	To      string // the name of a journal
	Command Command
}

// ended is the body of the letter of a journal that has ended.
type ended struct {
	Type string `json:"type"`
	Ref  Ref    `json:"ref"`
}

const typeEnded = "ended"

// Ended is the letter that notifies a parent of the end of a journal.
func Ended(parent string, child Ref) Letter {
	body, _ := json.Marshal(ended{typeEnded, child}) // It always has a JSON form.
	return Letter{parent, Command{ID: "ended/" + strconv.FormatInt(int64(child), 10), Body: body}}
}

// HasEnded returns the child journal whose letter a command is; false for other commands.
func HasEnded(c Command) (child Ref, is bool) {
	var e ended
	if err := json.Unmarshal(c.Body, &e); err != nil || e.Type != typeEnded {
		return 0, false
	}
	return e.Ref, true
}

// Row is a journal's row in lists: a projection of its events.
type Row struct {
	// Kind is the kind of the journal: a run or an eval.
	Kind Kind
	// State is a value of RunState or EvalState.
	State int32
	// Done marks a journal without remaining work. No replica adopts it.
	Done bool
	// Parent is the name of the eval that a run belongs to; empty if there is none.
	Parent string
	// Labels are used to select journals in lists. They are immutable.
	Labels map[string]string
	// Wake is when a waiting journal is to be looked at again; zero means never. A journal that does not wait is looked
	// at immediately.
	Wake time.Time
	// Waiting is set if the journal waits: for Wake, or for a command.
	Waiting bool
	// WaitReason is why a run waits, as in RunWait.reason, and WaitSince is the start of the wait. They are empty and
	// zero for journals that do not wait.
	WaitReason string
	WaitSince  time.Time
	// View is the resource without content, as a serialized Run or Eval. Its head and epoch may be behind.
	View []byte
}

// Kind is a kind of journal.
type Kind uint8

// The kinds of journals.
const (
	KindRun  Kind = 1
	KindEval Kind = 2
)

// Change is a store's number of a change of a journal's row: later changes have higher numbers. A store whose writers
// commit out of order returns a change only when no lower one can follow.
type Change int64

// ChangeQuery selects changes.
type ChangeQuery struct {
	Project string
	// After is the change after which to start; 0 returns all journals.
	After Change
	// Roots leaves out journals that have a parent.
	Roots bool
	// Limit bounds the number; 0 is 100.
	Limit int
	// Bytes bounds the size of the views, which the first may exceed; 0 is no bound.
	Bytes int
}

// Listed is a journal in a list.
type Listed struct {
	Head
	Row
	// Request is the key of the request that created the journal; empty if there was none.
	Request string
	// Change is the last change of state, of a journal that [Index.Changed] gave.
	Change Change
	// Before is the previous owner of a journal that [Owners.Claim] returned; empty if there was none.
	Before string
}

// Position is the journal's position in a list with the newest first, for a page token: the next entries have lower
// Refs.
func (l Listed) Position() string { return strconv.FormatInt(int64(l.Ref), 10) }

// PageBytes bounds a page of a list that clients are given, which its first entry may exceed: clients of gRPC take 4
// MiB.
const PageBytes = 3 << 20

// Fitting returns how many of the first rows, listed with [PageBytes] as Query.Bytes, fit into a page of that many.
func Fitting(rows []Listed, size int) int {
	bytes := 0
	for i, row := range rows {
		if bytes += len(row.View); i > 0 && bytes > PageBytes {
			return min(i, size)
		}
	}
	return size
}

// Wait is the journals that wait for the same reason.
type Wait struct {
	Reason string
	Count  int
	// View is that of the journal that has waited longest.
	View []byte
}

// DefaultBytes is the default bound of a page of events.
const DefaultBytes = 3 << 20

// Range selects events to read.
type Range struct {
	// After is the sequence number after which to start; 0 reads from the beginning.
	After int64
	// Limit bounds the number of events; 0 is 1000.
	Limit int
	// Bytes bounds their size, which the first event may exceed; 0 is DefaultBytes.
	Bytes int
	// Bare leaves out large contents, and values that are stored separately ([Offloading]). Small ones may be included.
	Bare bool
}

// Claim defines which journals a replica takes over.
type Claim struct {
	Replica string
	// Living are the owners that keep their journals. Replica is one of them, named or not.
	Living []string
	// Limit bounds the number.
	Limit int
}

// Command is an entry of an inbox.
type Command struct {
	// ID is unique in its journal.
	ID string
	// Body is the command in the encoding of its receiver.
	Body []byte
}

// Mailbox is a journal with commands that no event has answered yet.
type Mailbox struct {
	// Name is that of the journal.
	Name string
	// Newest is the store's own number of the newest of them. Commands that come later have higher ones.
	Newest int64
}

// Query selects journals to list. Zero members do not restrict the list.
type Query struct {
	Project string
	Kind    Kind
	States  []int32
	Parent  string
	Labels  map[string]string
	// WaitReason selects journals that wait for this reason.
	WaitReason string
	// Owner selects open journals of that replica.
	Owner string
	// Open selects journals that are not done, the oldest first. Its cost depends on the open journals, not on the size
	// of the parent.
	Open bool
	// Refs selects these journals.
	Refs []Ref
	// Waiting selects journals that wait, or those that do not.
	Waiting *bool
	// Before selects journals older than this one.
	Before Ref
	// Roots selects journals without a parent after After, the oldest first.
	Roots bool
	After Ref
	// Limit bounds the number; 0 is 100.
	Limit int
	// Bytes bounds the size of the views, which the last of two or more may exceed; 0 is no bound.
	Bytes int
}
