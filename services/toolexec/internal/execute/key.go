package execute

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// callKey is the key of one call of a request: `request/call`. Ids of calls are the provider's and may be long; a long one counts by its hash.
func callKey(project, requestID, callID string) effect.Key {
	return effect.Key{Project: project, ID: below(requestID, callID)}
}

// key is the key of call i of a batch, zero where the batch has none. Of calls with one id, which providers should not send but do, later ones get a
// number.
func (b *Batch) key(i int) effect.Key {
	if b.RequestID == "" {
		return effect.Key{}
	}
	id, same := b.Calls[i].GetId(), 0
	for _, call := range b.Calls[:i] {
		if call.GetId() == id {
			same++
		}
	}
	if same > 0 {
		id += "~" + strconv.Itoa(same)
	}
	return callKey(b.Project, b.RequestID, id)
}

// execKey is the key of the n-th command of a call.
func execKey(callKey string, n int) string {
	return below(callKey, "exec-"+strconv.Itoa(n))
}

// below returns `parent/child`, with hashes in place of what would be too long.
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

// hash is over all that decides what call i does. Two calls under one key must agree in it.
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
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	return sha256.Sum256(bytes), err
}
