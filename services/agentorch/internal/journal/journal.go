// Package journal is the port to the journals: fenced, append-only logs of events, one for each run and each eval.
//
// A journal is the only truth about its run. Everything else, such as the list of runs, is a projection ([Row]) that is
// written in the same transaction and could be dropped and made again by [Store.Rebuild]. A journal has one owner at a
// time; each change of owner raises its epoch, and an append must name the epoch and the sequence number that it
// follows:
//
//	append {epoch 3, after 17, events 18…20} ──▶ head is 17 and epoch is 3? ──▶ durable, head 20 ──▶ watchers wake
//	                                                    └─ no ──▶ [ErrFenced]: another replica owns the journal, forget it
//
// So a replica that was thought dead and comes back cannot write, and a repeated append cannot double.
//
// A [Store] also holds the inbox of each journal (commands of operators, kept until an event answers them) and the
// heartbeats of the replicas. Its methods are safe for concurrent use.
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
	// ErrFenced says that an append came from one who does not own the journal any more, or who does not know its last
	// event, such as one whose last append became durable although it was answered with an error. [FencedError] says
	// which.
	ErrFenced = errors.New("journal: owned by another under a newer epoch, or its head moved")
	// ErrNotFound says that there is no journal of that name.
	ErrNotFound = errors.New("journal: not found")
	// ErrReused says that a request id or a command id was used before with other content.
	ErrReused = errors.New("journal: id used before with other content")
	// ErrOpen says that a journal cannot be deleted, since it, or one whose parent it is, is not done.
	ErrOpen = errors.New("journal: not done")
	// ErrUnreadable says that what a journal holds cannot be turned back into its events: the database is damaged.
	ErrUnreadable = errors.New("journal: an event cannot be read")
	// ErrPart says that a journal cannot be deleted, since its parent is kept.
	ErrPart = errors.New("journal: part of one that is kept")
)

// Gone gives the error of a read its kind where the journal of that name was deleted meanwhile, and leaves all others
// as they are.
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

// InUseError says why a journal cannot be deleted. It wraps [ErrOpen] or [ErrPart].
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

// FencedError says where a journal stands that refused an append. It wraps [ErrFenced].
type FencedError struct {
	// Now is the head of the journal; zero where there is none any more.
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
	// Create makes a journal with its first events and returns its head. A Creation.Base that is not there is
	// [ErrNotFound]. When a journal was made by the same request before, it returns that one's head and
	// created is false; with other content it fails with [ErrReused].
	Create(ctx context.Context, c Creation) (head Head, created bool, err error)
	// Append adds events, and letters to the inboxes of other journals, and returns when they are durable. It fails
	// with a [FencedError] and then has changed nothing. A letter to a journal that there is not is dropped. An event
	// of more than [bound.JournalEventBytes] is refused with REQUEST_TOO_LARGE, and nothing is changed. After any other
	// error it may be durable all the same: only the journal says. An error of a store that is away has the kind
	// UNAVAILABLE (STORE_UNAVAILABLE).
	Append(ctx context.Context, a Append) error
	// Open returns the head of a journal, or [ErrNotFound].
	Open(ctx context.Context, name string) (Head, error)
	// Read returns events in order, of a journal that has a base those of the base first. A page may be shorter than
	// asked for; it is empty only where there are no more. It fails with [ErrUnreadable] where the first of them cannot
	// be read, and otherwise ends before such an event.
	Read(ctx context.Context, ref Ref, r Range) ([]*agentv1.Event, error)
	// Subscribe wakes the subscriber after every append to the journal of that name, after every change of a [Row]
	// whose Parent it is, and, by the name of a project (`projects/{project}`), after every change that [Index.Changed]
	// gives of it. Wake-ups are hints: several may come as one, and only the store says what is new.
	Subscribe(topic string) *Subscription
}

// Owners moves journals between replicas. It knows no time: which replicas live, the caller says.
type Owners interface {
	// Load returns how many open journals each owner has; the empty one has those that no replica has claimed yet.
	Load(ctx context.Context) (map[string]int, error)
	// Resume raises the epochs of all open journals that a replica owns, in one write, so that an earlier process of
	// the replica can append no more. It returns the newest journal that there is; those that the replica makes from
	// now on have higher refs. [Index.List] with Query.Owner gives the journals.
	Resume(ctx context.Context, replica string) (newest Ref, err error)
	// Claim gives open journals to a replica and raises their epochs: the oldest of those whose owner does not live, or
	// that have none. Replicas that claim at once get different ones.
	Claim(ctx context.Context, c Claim) ([]Listed, error)
	// Take gives a journal, open or not, to a replica and raises its epoch, above another one. It fails with a
	// [FencedError] where head's epoch is not that of the journal, and then has changed nothing.
	Take(ctx context.Context, head Head, replica string, above int64) (Head, error)
	// Owned returns the open journals that a replica owns, in order.
	Owned(ctx context.Context, replica string) ([]Ref, error)
}

// Inbox keeps commands until the owner of a journal has taken them.
type Inbox interface {
	// Post puts a command into a journal's inbox and returns when it is durable. The same id with the same body is the
	// same command; with another body it fails with [ErrReused]. It fails with [ErrNotFound] where there is no such
	// journal.
	Post(ctx context.Context, name string, c Command) error
	// Pending returns the commands that no event has answered yet, oldest first.
	Pending(ctx context.Context, ref Ref) ([]Command, error)
	// Taken returns the sequence number of the event that answered a command, or 0 while none has.
	Taken(ctx context.Context, name, id string) (int64, error)
	// Mail returns the open journals of an owner that have commands no event has answered yet.
	Mail(ctx context.Context, owner string) ([]Mailbox, error)
}

// Index lists journals by what their rows say.
type Index interface {
	// List returns journals that match, newest first; with Query.Open oldest first.
	List(ctx context.Context, q Query) ([]Listed, error)
	// Changed returns journals of a project in the order in which their states, or what they wait for, changed last,
	// and the newest change of all projects, as of the same moment. A change is visible when all before it are.
	Changed(ctx context.Context, q ChangeQuery) (page []Listed, newest Change, err error)
	// Waits returns what the journals below a parent wait for, ordered by reason.
	Waits(ctx context.Context, parent string) ([]Wait, error)
	// Rebuild makes all rows again. Fold gives the row of a journal from all its events, which are read as they are
	// asked for. Where it fails with [ErrUnreadable], the row that it returns is taken, and the journal stays as open
	// or done as it was.
	Rebuild(ctx context.Context, fold func(head Head, events iter.Seq2[*agentv1.Event, error]) (Row, error)) error
}

// Deletion removes journals that are done, in two steps: a mark that is durable at once, and the work behind it, which
// may be begun again at any time.
type Deletion interface {
	// Delete marks a journal and with it all whose parent it is. From then on nobody finds it by its name or its
	// request, in lists, or may append to it; the others follow. It fails with [ErrNotFound] and with an [InUseError],
	// and then has changed nothing.
	Delete(ctx context.Context, name string) error
	// Purge removes a share of what is marked: events, contents that no other event has, commands. It reports whether
	// there was any.
	Purge(ctx context.Context) (more bool, err error)
	// Unreleased returns runs that have ended or were deleted and whose results others may still keep, in the order of
	// their refs, after one. A run is among them from the append that ends it.
	Unreleased(ctx context.Context, after Ref, limit int) ([]Unreleased, error)
	// Released forgets such runs: nobody keeps anything of them. It leaves refs that are not known alone.
	Released(ctx context.Context, refs ...Ref) error
	// Identity returns the random id of the store, which it keeps for life, and whether there has ever been a journal
	// in it.
	Identity(ctx context.Context) (id string, used bool, err error)
	// Texts gives all that journals hold, event by event and content by content, in an order of its own, and returns
	// where it ended: what is appended meanwhile may come after that. A content that cannot be unpacked is given as it
	// is stored. It begins after a place that it returned before; the zero one is the beginning.
	Texts(ctx context.Context, after Place, each func(text []byte) error) (Place, error)
	// Commands gives the commands of all journals that no event has answered yet.
	Commands(ctx context.Context, each func(Command) error) error
}

// Place is a place in all that a store holds, in its own numbers.
type Place struct{ Events, Contents int64 }

// Unreleased is a run of which others may keep results.
type Unreleased struct {
	Ref  Ref
	Name string // as it was, where it was deleted
	// At is when it ended, or was deleted.
	At time.Time
}

// Ref is a store's own number of a journal. Journals made later have higher ones.
type Ref int64

// Head is where a journal stands.
type Head struct {
	Ref   Ref
	Name  string // `projects/{project}/runs/{run}` or `projects/{project}/evals/{eval}`
	Seq   int64  // sequence number of the last event
	Epoch int64  // raised with every change of owner
	Owner string // the replica; empty while none has claimed it
}

// Entry is one event to append.
type Entry struct {
	// Event has its sequence number set; journal and epoch are the store's to set when it is read. It is not changed.
	Event *agentv1.Event
	// Same is the sequence number of an earlier event of the journal, perhaps in the same append, that holds the very
	// content of this one, which is then stored once: the message that a MessageAdded adds ([MessageOf]), or the call
	// in such a message that a ToolIntent begins. 0 says that there is none.
	Same int64
}

// Creation is a journal to be made.
type Creation struct {
	Name string
	// Owner is the replica that drives it; empty for any that claims it.
	Owner   string
	Entries []Entry
	Row     Row
	// Request is the key of the request that makes it, unique over all projects and methods; empty for none.
	Request string
	// Digest is a hash of that request's content; empty where the request's key alone says what is asked for.
	Digest []byte
	// Base is where the journal begins; zero for a journal of its own.
	Base Base
}

// Base is a place in another journal of the same project, open or not: the journal that stands on it has the events up
// to there as its own, under its own name, and goes on after them. They are stored once, and stay where they are when
// the other journal is deleted, until the last journal that stands on it is gone. Entries.Same may name them.
type Base struct {
	Ref Ref
	// Seq is the last event that both have; from 1 to the other's last.
	Seq int64
}

// Append is an addition to a journal.
type Append struct {
	// Head is the journal as its owner knows it: ref, name, last sequence number and epoch count. The events follow it
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

// Letter is a command that one journal sends to another: it is in the inbox as soon as the append that sends it is
// durable, and never without it. A letter of an id that the inbox has already is the same letter.
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

// Ended is the letter by which a journal tells its parent that it has ended.
func Ended(parent string, child Ref) Letter {
	body, _ := json.Marshal(ended{typeEnded, child}) // It always has a JSON form.
	return Letter{parent, Command{ID: "ended/" + strconv.FormatInt(int64(child), 10), Body: body}}
}

// HasEnded returns the journal whose letter a command is; false for another command.
func HasEnded(c Command) (child Ref, is bool) {
	var e ended
	if err := json.Unmarshal(c.Body, &e); err != nil || e.Type != typeEnded {
		return 0, false
	}
	return e.Ref, true
}

// Row is what lists show of a journal: a projection of its events.
type Row struct {
	// Kind tells runs from evals.
	Kind Kind
	// State is a value of RunState or EvalState.
	State int32
	// Done says that nothing is left to do: nobody adopts the journal any more.
	Done bool
	// Parent is the name of the eval that a run belongs to; empty for none.
	Parent string
	// Labels can be asked for in lists. They do not change after creation.
	Labels map[string]string
	// Wake is when a journal that waits is to be looked at again; zero for never. A journal that does not wait is
	// looked at, at once.
	Wake time.Time
	// Waiting says that the journal waits: for Wake, or for a command.
	Waiting bool
	// WaitReason is why a run waits, the word of its RunWait.reason, and WaitSince since when; empty and zero for what
	// does not wait.
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

// Change is a store's own number of a change of a journal's row: later ones have higher numbers. A store in which
// writers commit out of order gives those alone below which nothing is still to come.
type Change int64

// ChangeQuery says which changes to give.
type ChangeQuery struct {
	Project string
	// After is the change to go on after; 0 gives all journals.
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
	// Change is the last change of state, of a journal that [Index.Changed] gave.
	Change Change
	// Before is the owner before, of a journal that [Owners.Claim] gave; empty for none.
	Before string
}

// Position is where the journal stands in a list that gives the newest first, for a page token: what follows has a
// lower Ref.
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

// DefaultBytes bounds a page of events where nothing else is asked for.
const DefaultBytes = 3 << 20

// Range says which events to read.
type Range struct {
	// After is the sequence number to go on after; 0 reads from the beginning.
	After int64
	// Limit bounds the number of events; 0 is 1000.
	Limit int
	// Bytes bounds their size, which the first event may exceed; 0 is DefaultBytes.
	Bytes int
	// Bare leaves out large contents, and values that stand apart ([Offloading]). Small ones may be there.
	Bare bool
}

// Claim says which journals a replica takes.
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
	// Body is what to do, in the form of whoever takes it.
	Body []byte
}

// Mailbox is a journal with commands that no event has answered yet.
type Mailbox struct {
	// Name is that of the journal.
	Name string
	// Newest is the store's own number of the newest of them. Commands that come later have higher ones.
	Newest int64
}

// Query says which journals to list. Zero members do not narrow.
type Query struct {
	Project string
	Kind    Kind
	States  []int32
	Parent  string
	Labels  map[string]string
	// WaitReason gives those that wait for it.
	WaitReason string
	// Owner gives open journals of that replica only.
	Owner string
	// Open gives journals that are not done only, the oldest first. It costs what is open, not what the parent has.
	Open bool
	// Refs gives these only.
	Refs []Ref
	// Waiting gives journals that wait, or those that do not.
	Waiting *bool
	// Before gives older journals than this one only.
	Before Ref
	// Roots gives journals without a parent after After, the oldest first.
	Roots bool
	After Ref
	// Limit bounds the number; 0 is 100.
	Limit int
	// Bytes bounds the size of the views, which the last of two or more may exceed; 0 is no bound.
	Bytes int
}
