package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// ErrNotFound is returned for a batch or a rider that a store does not have.
var ErrNotFound = errors.New("batch: not found")

// Group is what the riders of one batch have in common.
type Group struct {
	// Ref is the model.
	Ref provider.Ref
	// URL is the address of a plain request, and Header the headers that a batch has too. They hold no credential.
	URL    string
	Header http.Header
}

// ID identifies a group by its content.
func (l Group) ID() string {
	document, _ := json.Marshal(l) // texts alone
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:16])
}

// State is the state of a rider. The numbers are stored.
type State uint8

// States of a rider.
const (
	// Waiting is in no batch yet.
	Waiting State = 1
	// Sent is in a batch, which the vendor may not have yet.
	Sent State = 2
	// Answered has a result, whether or not it is a failure.
	Answered State = 3
	// Told has a failure that its call was given, and that another attempt has followed.
	Told State = 4
	// Left is a request in a batch whose answer no call waits for any more.
	Left State = 5
)

// Rider is one request on its way through a batch.
type Rider struct {
	// ID is the store's.
	ID    int64
	Group string
	// Key is that of the call; its ID is empty for a call without a key, which ends with its process.
	Key effect.Key
	// Owner is the process of a call without a key; empty if there is a key.
	Owner string
	// Hash is that of the body.
	Hash [sha256.Size]byte
	// Size is the length of the body.
	Size  int64
	State State
	// Batch is the id of its batch; empty while it waits.
	Batch string
	// Result is set once it is answered.
	Result provider.BatchResult
	// Created is when it joined.
	Created time.Time
}

// Phase is the state of a batch. The numbers are stored.
type Phase uint8

// Phases of a batch.
const (
	// Intended is to be sent; it is unknown whether the vendor has it.
	Intended Phase = 1
	// InFlight is at the vendor.
	InFlight Phase = 2
	// Ended is over: no rider waits for it.
	Ended Phase = 3
)

// Batch is a set of riders that travel together.
type Batch struct {
	// ID is unique. The vendor is sent it.
	ID      string
	Group   string
	Project string
	// Model and Account are those of the group, for lists.
	Model, Account string
	// VendorID is the vendor's; empty while it is intended.
	VendorID string
	// Guessed means that VendorID was found, at a vendor that does not say who made a batch.
	Guessed bool
	// NotThese are ids of the vendor that turned out to be of other batches.
	NotThese []string
	Phase    Phase
	Requests int
	// Completed and Failed count riders, in flight as the vendor says.
	Completed, Failed int
	// Cancelled means that someone asked for its end.
	Cancelled bool
	// Error is the latest failure to send it or to ask for it.
	Error string
	// Created is when it was assembled; Over is when it ended, and zero before.
	Created, Over time.Time
}

// Store keeps riders and batches. A change is on disk once its method has returned nil, unless the implementation says
// otherwise. Its methods are safe for concurrent use. Callers do not change what they pass or get.
type Store interface {
	// Join returns the rider of a call with this key and body that its call has not been told a failure of. If there is
	// none it adds one, which waits. The setting becomes that of the group. A call without a key always adds one, for
	// its owner.
	Join(ctx context.Context, group Group, setting *modelv1.BatchSetting, key effect.Key, owner string, body []byte) (Rider, error)
	// Rider returns a rider by its id.
	Rider(ctx context.Context, id int64) (Rider, error)
	// OfKey returns the riders of a call with a key, the oldest first: those in the state Told with their results, the
	// others without.
	OfKey(ctx context.Context, key effect.Key) ([]Rider, error)
	// Tell notes that the call of a rider was given its failure.
	Tell(ctx context.Context, id int64) error
	// Leave drops a rider that waits or is answered, and marks one in a batch as left.
	Leave(ctx context.Context, ids ...int64) error
	// LeaveRuns leaves the riders whose keys the runs of a project issued, and returns those keys. Runs are ids.
	LeaveRuns(ctx context.Context, project string, runs ...string) ([]effect.Key, error)

	// Lead returns the process that sends and looks after batches. If there is none, or if it is the one that is named
	// as dead, owner becomes it.
	Lead(ctx context.Context, owner, dead string) (leader string, err error)
	// Group returns a group and its setting.
	Group(ctx context.Context, id string) (Group, *modelv1.BatchSetting, error)
	// Busy returns the groups with riders that wait, or with batches that have not ended.
	Busy(ctx context.Context) ([]string, error)
	// Pending returns the riders of all groups that wait or are sent, without those that are left.
	Pending(ctx context.Context) ([]Rider, error)
	// WaitingIn returns the riders of a group that wait, the oldest first.
	WaitingIn(ctx context.Context, group string) ([]Rider, error)
	// Begin adds an intended batch, and moves those of the riders into it that still wait. It sets the number of its
	// requests; if that is zero nothing is added.
	Begin(ctx context.Context, b Batch, riders []int64) (Batch, error)
	// Lines returns the sizes of the bodies of the riders of a batch, by the riders' ids.
	Lines(ctx context.Context, batch string) (map[int64]int64, error)
	// Body returns the body of a rider of a batch that has not ended.
	Body(ctx context.Context, id int64) ([]byte, error)
	// Living returns how many riders of a batch are sent, and not left.
	Living(ctx context.Context, batch string) (int, error)
	// Update stores the mutable members of a batch: VendorID, Guessed, NotThese, Phase, Completed, Failed, Error and
	// Over. Ending a batch forgets the bodies of its riders, and those that are left.
	Update(ctx context.Context, b Batch) error
	// RequestCancel sets Cancelled of a batch that has not ended, and returns it.
	RequestCancel(ctx context.Context, project, id string) (Batch, error)
	// Settle stores results of riders of a batch. Riders that are not of the batch or not sent are ignored. It returns
	// the keys of those that have a result now.
	Settle(ctx context.Context, batch string, results map[int64]provider.BatchResult) ([]effect.Key, error)
	// Unsettled returns the ids of the riders of a batch that have no result.
	Unsettled(ctx context.Context, batch string) ([]int64, error)
	// OpenIn returns the batches of a group that have not ended, the oldest first.
	OpenIn(ctx context.Context, group string) ([]Batch, error)
	// List returns batches of a project, or of all if that is empty, the newest first: those before another one if its
	// id is given, and at most limit.
	List(ctx context.Context, project, before string, limit int) ([]Batch, error)
	// Expire deletes batches that ended before a time, and answered and told riders that joined before it, except those
	// of batches that stay.
	Expire(ctx context.Context, before time.Time) error
}
