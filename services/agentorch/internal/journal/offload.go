package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Offloading stores large values of events in the blob store, where they are durable before the event that refers to
// them is appended. Readers get complete events, except with [Range.Bare]. A crash between the two writes leaves a body
// without a reference, which is swept.
func Offloading(store Store, blobs offload.Store) Store { return &offloading{store, blobs} }

type offloading struct {
	Store
	blobs offload.Store
}

// Create implements [Journals].
func (o *offloading) Create(ctx context.Context, c Creation) (Head, bool, error) {
	var err error
	if c.Entries, err = o.put(ctx, c.Name, c.Entries); err != nil {
		return Head{}, false, err
	}
	return o.Store.Create(ctx, c)
}

// Append implements [Journals].
func (o *offloading) Append(ctx context.Context, a Append) (err error) {
	if a.Entries, err = o.put(ctx, a.Head.Name, a.Entries); err != nil {
		return err
	}
	return o.Store.Append(ctx, a)
}

// put returns entries with small events. It does not change the given entries.
func (o *offloading) put(ctx context.Context, name string, entries []Entry) ([]Entry, error) {
	limits := offload.Limits{Value: offload.LargeBytes, Message: bound.JournalEventBytes}
	var all []Entry // a copy, once one is needed
	for i, e := range entries {
		if e.Same != 0 { // Its content is another event's.
			continue
		}
		size := proto.Size(e.Event)
		if size <= limits.Value {
			continue
		}
		event := withoutCompletion(shallowCopy(e.Event)) // A text is stored once.
		if size = proto.Size(event); size > bound.JournalValuesBytes {
			return nil, tooLarge(event, size, bound.JournalValuesBytes)
		}
		event, err := offload.Put(ctx, o.blobs, projectOf(name), event, limits)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = append(all, entries...)
		}
		all[i].Event = event
	}
	if all == nil {
		return entries, nil
	}
	failpoint.Hit("agentorch/after-values")
	return all, nil
}

// Read implements [Journals].
func (o *offloading) Read(ctx context.Context, ref Ref, r Range) ([]*agentv1.Event, error) {
	events, err := o.Store.Read(ctx, ref, r)
	if err != nil || r.Bare {
		return events, err
	}
	if r.Bytes <= 0 {
		r.Bytes = DefaultBytes
	}
	size := 0
	for i, e := range events {
		apart := 0
		for _, f := range e.GetOffloaded() {
			apart += int(f.GetBlob().GetSize())
		}
		if size += proto.Size(e) + apart; i > 0 && size > r.Bytes {
			return events[:i], nil
		}
		if apart == 0 {
			continue
		}
		err := offload.Take(ctx, o.blobs, projectOf(e.GetJournal()), e, bound.JournalValuesBytes)
		switch {
		case err == nil:
			complete(e)
		case i > 0 && !rpcerr.Transient(err):
			return events[:i], nil // The next page begins with it.
		case rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_BODY_DAMAGED):
			return nil, fmt.Errorf("%w: a value of event %d: %v", ErrUnreadable, e.GetSeq(), err) //nolint:errorlint // To callers it is the journal that cannot be read, whatever the body's fault.
		default:
			return nil, fmt.Errorf("journal: a value of event %d: %w", e.GetSeq(), err)
		}
	}
	return events, nil
}

// projectOf returns a function that looks up the project's id in a journal's name.
func projectOf(name string) func() (string, error) {
	return func() (string, error) {
		parts := strings.SplitN(name, "/", 3)
		if len(parts) != 3 {
			return "", errors.New("journal: " + strconv.Quote(name) + " names no journal")
		}
		return parts[1], nil
	}
}

// tooLarge refuses an event.
func tooLarge(event *agentv1.Event, size, limit int) error {
	kind := "of an unknown kind"
	if field := kindField(event.ProtoReflect()); field != nil {
		kind = string(field.Name())
	}
	return rpcerr.RequestTooLarge("", limit, "event %d (%s) has %d bytes, and a journal keeps at most %d of one", event.GetSeq(), kind, size, limit)
}

// The paths of the message that [MessageOf] returns from an outcome, and of the place where [PutSame] stores it.
const (
	answeredMessage = "model_outcome.content.output.choices[0].message."
	toolContent     = "tool_outcome.content.result.content."
	toolError       = "tool_outcome.content.result.error."
	addedMessage    = "message_added.content."
	begunCall       = "tool_intent.content."
)

// sameOffloaded copies references into an event that shares the content of an earlier event, and returns an event with
// a content of its own if there are any.
func sameOffloaded(event, source *agentv1.Event) (own *agentv1.Event) {
	if len(source.GetOffloaded()) == 0 {
		return source
	}
	moves := map[string]string{}
	switch kind := event.GetKind().(type) {
	case *agentv1.Event_MessageAdded:
		moves = map[string]string{answeredMessage: addedMessage, toolContent: addedMessage + "content.", toolError: addedMessage + "error."}
	case *agentv1.Event_ToolIntent:
		for i, call := range MessageOf(source).GetToolCalls() {
			if call.GetId() == kind.ToolIntent.GetCallId() {
				moves = map[string]string{answeredMessage + "tool_calls[" + strconv.Itoa(i) + "].": begunCall}
			}
		}
	}
	for _, ref := range source.GetOffloaded() {
		for from, to := range moves {
			if rest, ok := strings.CutPrefix(ref.GetField(), from); ok {
				event.Offloaded = append(event.Offloaded, &contentv1.OffloadedField{Field: to + rest, Blob: ref.GetBlob()})
			}
		}
	}
	return proto.CloneOf(source)
}
