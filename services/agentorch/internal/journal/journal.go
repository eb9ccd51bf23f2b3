// Package journal is the port to the journals: fenced, append-only logs of events, one for each run and each eval.
//
// A journal is the only truth about its run. Everything else, such as the list of runs, is a projection ([Row]) that is written in the same transaction and could be
// dropped and made again by [Store.Rebuild]. A journal has one owner at a time; each change of owner raises its epoch, and an append must name the epoch and the
// sequence number that it follows:
//
//	append {epoch 3, after 17, events 18…20} ──▶ head is 17 and epoch is 3? ──▶ durable, head 20 ──▶ watchers wake
//	                                                    └─ no ──▶ [ErrFenced]: another replica owns the journal, forget it
//
// So a replica that was thought dead and comes back cannot write, and a repeated append cannot double.
//
// A [Store] also holds the inbox of each journal (commands of operators, kept until an event answers them) and the heartbeats of the replicas. Its methods may be
// called concurrently.
package journal

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

var (
	// ErrFenced says that an append came from one who does not own the journal any more, or who does not know its last event.
	ErrFenced = errors.New("journal: owned by another under a newer epoch, or its head moved")
	// ErrNotFound says that there is no journal of that name.
	ErrNotFound = errors.New("journal: not found")
	// ErrReused says that a request id or a command id was used before with other content.
	ErrReused = errors.New("journal: id used before with other content")
)

// Store keeps journals. See the package comment.
type Store interface {
	Journals
	Owners
	Inbox
	Index
}

// Journals creates, appends to and reads journals.
type Journals interface {
	// Create makes a journal with its first events and returns its head. When a journal was made by the same request before, it returns that one's head and
	// created is false; with other content it fails with [ErrReused].
	Create(ctx context.Context, c Creation) (head Head, created bool, err error)
	// Append adds events and returns when they are durable. It fails with [ErrFenced] and then has changed nothing.
	Append(ctx context.Context, a Append) error
	// Open returns the head of a journal, or [ErrNotFound].
	Open(ctx context.Context, name string) (Head, error)
	// Read returns events in order. A page may be shorter than asked for; it is empty only where there are no more.
	Read(ctx context.Context, ref Ref, r Range) ([]*agentv1.Event, error)
	// Subscribe wakes the subscriber after every append to the journal of that name, and after every change of a [Row] whose Parent it is. Wake-ups are hints:
	// several may come as one, and only the store says what is new.
	Subscribe(topic string) *Subscription
}

// Owners moves journals between replicas.
type Owners interface {
	// Beat says that a replica lives.
	Beat(ctx context.Context, replica string, now time.Time) error
	// Adopt gives open journals to a replica and raises their epochs: its own, with Adoption.Own, and those of replicas that have not beaten since
	// Adoption.DeadSince. It returns at most Adoption.Limit journals after Adoption.After, in the order of their refs; none when there are no more.
	Adopt(ctx context.Context, a Adoption) ([]Listed, error)
}

// Inbox keeps commands until the owner of a journal has taken them.
type Inbox interface {
	// Post puts a command into a journal's inbox and returns when it is durable. The same id with the same body is the same command; with another body it
	// fails with [ErrReused]. It fails with [ErrNotFound] where there is no such journal.
	Post(ctx context.Context, name string, c Command) error
	// Pending returns the commands that no event has answered yet, oldest first.
	Pending(ctx context.Context, ref Ref) ([]Command, error)
	// Taken returns the sequence number of the event that answered a command, or 0 while none has.
	Taken(ctx context.Context, name, id string) (int64, error)
}

// Index lists journals by what their rows say.
type Index interface {
	// List returns journals that match, newest first; with Query.ChangedAfter in the order of their last change.
	List(ctx context.Context, q Query) ([]Listed, error)
	// Waits returns what the journals below a parent wait for, ordered by reason.
	Waits(ctx context.Context, parent string) ([]Wait, error)
	// Rebuild makes all rows again. Fold gives the row of a journal from all its events, which are read as they are asked for.
	Rebuild(ctx context.Context, fold func(head Head, events iter.Seq2[*agentv1.Event, error]) (Row, error)) error
}

// Ref is a store's own number of a journal. Journals made later have higher ones.
type Ref int64

// Head is where a journal stands.
type Head struct {
	Ref   Ref
	Name  string // `projects/{project}/runs/{run}` or `projects/{project}/evals/{eval}`
	Seq   int64  // sequence number of the last event
	Epoch int64  // raised with every change of owner
	Owner string // the replica
}

// Entry is one event to append.
type Entry struct {
	// Event has its sequence number set; journal and epoch are the store's to set when it is read. It is not changed.
	Event *agentv1.Event
	// Same is the sequence number of an earlier event of the journal, perhaps in the same append, that holds the very content of this one, which is then stored
	// once: the message that a MessageAdded adds ([MessageOf]), or the call in such a message that a ToolIntent begins. 0 says that there is none.
	Same int64
}

// Creation is a journal to be made.
type Creation struct {
	Name    string
	Owner   string
	Entries []Entry
	Row     Row
	// Request is the key of the request that makes it, unique over all projects and methods; empty for none.
	Request string
	// Digest is a hash of that request's content.
	Digest []byte
}

// Append is an addition to a journal.
type Append struct {
	// Head is the journal as its owner knows it: ref, name, last sequence number and epoch count. The events follow it without a gap.
	Head    Head
	Entries []Entry
	// Row replaces the journal's row; nil leaves it as it is.
	Row *Row
	// Took names the inbox commands that these events answer.
	Took []string
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
	// Wake is when a journal that waits is to be looked at again; zero for never. A journal that does not wait is looked at, at once.
	Wake time.Time
	// Waiting says that the journal waits: for Wake, or for a command.
	Waiting bool
	// WaitReason is why a run waits, as its RunWait has it, and WaitSince since when; empty and zero for what does not wait.
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

// Listed is a journal in a list.
type Listed struct {
	Head
	Row
	// Changed orders the changes of rows: the row that changed last has the highest number.
	Changed int64
}

// Position is where the journal stands in a list that gives the newest first, for a page token: what follows has a lower Ref.
func (l Listed) Position() string { return strconv.FormatInt(int64(l.Ref), 10) }

// Wait is the journals that wait for the same reason.
type Wait struct {
	Reason string
	Count  int
	// View is that of the journal that has waited longest.
	View []byte
}

// Range says which events to read.
type Range struct {
	// After is the sequence number to go on after; 0 reads from the beginning.
	After int64
	// Limit bounds the number of events; 0 is 1000.
	Limit int
	// Bytes bounds their size, which the first event may exceed; 0 is 3 MiB.
	Bytes int
	// Bare leaves out large contents. Small ones may be there.
	Bare bool
}

// Adoption says which journals a replica takes.
type Adoption struct {
	Replica   string
	Own       bool
	DeadSince time.Time
	After     Ref
	Limit     int
}

// Command is an entry of an inbox.
type Command struct {
	// ID is unique in its journal.
	ID string
	// Body is what to do, in the form of whoever takes it.
	Body []byte
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
	// Before gives older journals than this one only.
	Before Ref
	// ChangedAfter gives rows that changed later only, in the order of their changes.
	ChangedAfter *int64
	// Limit bounds the number; 0 is 100.
	Limit int
}
