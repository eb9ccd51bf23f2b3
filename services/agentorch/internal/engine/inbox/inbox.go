// Package inbox has the form of commands in the inboxes of runs.
package inbox

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Command is an operator's command in a run's inbox: its principal, and the original request.
type Command struct {
	// ID is unique in the inbox.
	ID string
	// Principal is who sent it, such as `user:ada`.
	Principal string
	// Request is a CancelRunRequest, RetuneLimitsRequest, PostMessageRequest, InterruptRunRequest, CancelCallRequest,
	// HoldRunRequest, ResumeRunRequest or EffectRequest.
	Request proto.Message
}

// Effect is the command that asks for an effect from outside. The asker's key is its id, so that the same key is the
// same effect.
func Effect(principal string, r *agentv1.EffectRequest) Command {
	return Command{ID: "effect/" + r.GetClientKey(), Principal: principal, Request: r}
}

// limits define which values of a command are offloaded: those that are offloaded of the event that takes it.
var limits = offload.Limits{Value: offload.LargeBytes, Message: bound.JournalEventBytes}

// Offload returns the command with its large values in the blob store, so that its row is small. If blobs is nil, all
// values stay.
func (c Command) Offload(ctx context.Context, blobs offload.Store) (_ Command, err error) {
	if blobs != nil {
		c.Request, err = offload.Put(ctx, blobs, offload.Project(c.Request), c.Request, limits)
	}
	return c, err
}

// Restore brings the values back. It fails as [offload.Take] does.
func (c Command) Restore(ctx context.Context, blobs offload.Store) error {
	if blobs == nil {
		return nil
	}
	return offload.Take(ctx, blobs, offload.Project(c.Request), c.Request, bound.JournalValuesBytes)
}

// posted is the stored form of a command.
type posted struct {
	Principal string `json:"principal"`
	Type      string `json:"type"`
	Request   []byte `json:"request"`
}

// Pack encodes the command for the inbox.
func (c Command) Pack() (journal.Command, error) {
	request := &anypb.Any{}
	if err := anypb.MarshalFrom(request, c.Request, proto.MarshalOptions{Deterministic: true}); err != nil {
		return journal.Command{}, fmt.Errorf("inbox: command: %w", err)
	}
	body, err := json.Marshal(posted{Principal: c.Principal, Type: request.GetTypeUrl(), Request: request.GetValue()})
	return journal.Command{ID: c.ID, Body: body}, err
}

// Text returns the content of a command in plain text, as far as this version can read it. Use it to search for names.
func Text(c journal.Command) []byte {
	var p posted
	if json.Unmarshal(c.Body, &p) != nil || len(p.Request) == 0 {
		return c.Body
	}
	return p.Request
}

// Unpack decodes a command. It fails if this version does not know the kind of the command.
func Unpack(c journal.Command) (Command, error) {
	var p posted
	if err := json.Unmarshal(c.Body, &p); err != nil {
		return Command{}, fmt.Errorf("inbox: command %s: %w", c.ID, err)
	}
	request, err := (&anypb.Any{TypeUrl: p.Type, Value: p.Request}).UnmarshalNew()
	if err != nil {
		return Command{}, fmt.Errorf("inbox: command %s: %w", c.ID, err)
	}
	switch request.(type) {
	case *agentv1.CancelRunRequest, *agentv1.RetuneLimitsRequest, *agentv1.PostMessageRequest, *agentv1.InterruptRunRequest,
		*agentv1.CancelCallRequest, *agentv1.HoldRunRequest, *agentv1.ResumeRunRequest, *agentv1.EffectRequest:
		return Command{ID: c.ID, Principal: p.Principal, Request: request}, nil
	}
	return Command{}, fmt.Errorf("inbox: command %s is a %s", c.ID, p.Type)
}
