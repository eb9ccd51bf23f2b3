package execute

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// callKey returns the key of one call of a request: `request/index/call`. The key has the call's index because
// providers do send two calls with one id. Ids come from the provider and may be long; a long id is replaced by its
// hash.
func callKey(project, requestID string, call *toolv1.CallRef) effect.Key {
	return effect.Key{Project: project, ID: below(requestID, strconv.Itoa(int(call.GetIndex()))+"/"+call.GetCallId())}
}

func callKeys(project, requestID string, calls []*toolv1.CallRef) []effect.Key {
	keys := make([]effect.Key, len(calls))
	for i, call := range calls {
		keys[i] = callKey(project, requestID, call)
	}
	return keys
}

// setKeys gives each call of a batch its key. A batch without a request id has none.
func (b *Batch) setKeys() {
	if b.RequestID == "" {
		return
	}
	calls := make([]*toolv1.CallRef, len(b.Calls))
	for i, call := range b.Calls {
		calls[i] = &toolv1.CallRef{CallId: call.GetId(), Index: int32(i)}
	}
	b.keys = callKeys(b.Project, b.RequestID, calls)
}

// key returns the key of call i of a batch; zero if the batch has no keys.
func (b *Batch) key(i int) effect.Key {
	if b.keys == nil {
		return effect.Key{}
	}
	return b.keys[i]
}

// execKey returns the key of the n-th command of a call.
func execKey(callKey string, n int) string {
	return below(callKey, "exec-"+strconv.Itoa(n))
}

// below returns `parent/child`, with hashes in place of parts that are too long.
func below(parent, child string) string {
	if key := parent + "/" + child; len(key) <= effect.MaxIDBytes {
		return key
	}
	child = digest(child)
	if key := parent + "/" + child; len(key) <= effect.MaxIDBytes {
		return key
	}
	return digest(parent) + "/" + child
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// hash returns the hash of everything that determines what call i does. Two calls with one key must have the same hash.
func (b *Batch) hash(i int) (effect.Hash, error) {
	request := &toolv1.ExecuteToolsRequest{
		Parent:         b.Project,
		Calls:          b.Calls[i : i+1],
		MaxOutputBytes: b.MaxOutputBytes,
		Sandboxes:      b.Sandboxes,
		Store:          b.Store,
		FailFast:       b.FailFast,
		Timeout:        durationpb.New(b.Timeout),
	}
	if offer := slices.Index(b.Offers, b.Offers.Find(b.Calls[i].GetFunction())); offer >= 0 {
		request.Tools = b.Refs[offer : offer+1]
	}
	return effectrpc.Hash(request)
}
