// Package workertool makes the tools that workers serve: to everyone else they are tools like any other.
//
// What a worker is told of a call, and what it answers, are the JSON forms of ToolPayload and ToolResultPayload. An answer that cannot be read is an error for the model, as a
// command is that prints nonsense; the worker stays connected. Pools, lost workers and the waiting for one are package worker's.
package workertool

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/pkg/chat"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// Kind is the kind of offers.
const Kind = "tool"

// noParameters is the schema of a tool whose offer names none.
const noParameters = `{"type":"object","properties":{},"additionalProperties":false}`

// Source is the tools of a host's workers.
type Source struct{ host *worker.Host }

// New makes the source of a host's tools.
func New(host *worker.Host) *Source { return &Source{host: host} }

// Offers is the kind of thing that a host serves as tools: what models would be told must pass the registry.
func Offers(registry *tool.Registry) worker.Kind {
	return worker.Kind{Name: Kind, Check: func(offer *workerv1.Offer) error { return registry.CheckDefinition(Definition(offer).GetInfo()) }}
}

// Definition is what an offer says of a tool.
func Definition(offer *workerv1.Offer) *toolv1.ToolDefinition {
	parameters := offer.GetParametersJson()
	if parameters == "" {
		parameters = noParameters
	}
	return &toolv1.ToolDefinition{
		Info:     &toolv1.ToolInfo{Name: offer.GetName(), Description: offer.GetDescription(), ParametersJson: parameters},
		Parallel: offer.GetParallel(), OnUnknown: worker.OnUnknown(offer), StoreKeys: offer.GetStoreKeys(), Timeout: offer.GetTimeout(), Worker: offer.GetName(),
	}
}

// Definitions implements [tool.Source].
func (s *Source) Definitions(project string) []*toolv1.ToolDefinition {
	offers := s.host.List(project, Kind)
	definitions := make([]*toolv1.ToolDefinition, len(offers))
	for i, offer := range offers {
		definitions[i] = Definition(offer)
	}
	return definitions
}

// Find implements [tool.Source].
func (s *Source) Find(project, name string) *toolv1.ToolDefinition {
	offer := s.host.Find(project, Kind, name)
	if offer == nil {
		return nil
	}
	return Definition(offer)
}

// Tool implements [tool.Source].
func (s *Source) Tool(definition *toolv1.ToolDefinition) tool.Tool {
	return &served{host: s.host, definition: &tool.Definition{Public: definition}}
}

// served is a tool in the hands of workers.
type served struct {
	host       *worker.Host
	definition *tool.Definition
}

// Definition implements [tool.Tool].
func (s *served) Definition() *tool.Definition { return s.definition }

// Call implements [tool.Tool].
func (s *served) Call(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	public := s.definition.Public
	name := public.GetWorker()
	payload, err := protojson.Marshal(&workerv1.ToolPayload{
		CallId: call.ID, ArgumentsJson: string(call.Arguments), Store: texts(call.Store.Entries()), Attribution: call.Attribution,
	})
	if err != nil {
		return nil, err
	}
	answer, err := s.host.Do(ctx, worker.Call{
		Key: call.Key, Kind: Kind, Name: name, PayloadJSON: string(payload), OnUnknown: public.GetOnUnknown(), Timeout: public.GetTimeout().AsDuration(), Progress: call.Progress, Lost: call.Again,
	})
	switch {
	case errors.Is(err, worker.ErrTimeout):
		return nil, &tool.Error{
			Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, Message: name + " did not answer within " + public.GetTimeout().AsDuration().Round(time.Millisecond).String(),
		}
	case errors.Is(err, worker.ErrUnknown):
		return nil, errors.Join(tool.ErrIndeterminate, err)
	case worker.NotBegun(err):
		return nil, &tool.PostponedError{Cause: err}
	case err != nil:
		return nil, err
	case answer.Error.GetFatal():
		return nil, rpcerr.WorkerFailed(Kind, name, "its worker says that the call failed for good: %s: %s", answer.Error.GetType(), answer.Error.GetMessage())
	case answer.Error != nil:
		return nil, &tool.Error{Type: chat.ToolErrorType(answer.Error.GetType()), Message: answer.Error.GetMessage()}
	}
	return read(name, answer, call.Store)
}

// read turns an answer into a result.
func read(name string, answer worker.Answer, store *tool.Store) (*tool.Result, error) {
	sent := &workerv1.ToolResultPayload{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(answer.PayloadJSON), sent); err != nil {
		return nil, tool.Errorf("the worker that serves %s answered what cannot be read; the call may have taken effect", name)
	}
	if err := store.Apply(sent.GetStoreChanges()); err != nil {
		return nil, tool.Errorf("the worker that serves %s answered what cannot be taken: %v", name, err)
	}
	result := tool.Text(sent.GetText())
	if len(sent.GetParts()) > 0 {
		result = tool.Parts(sent.GetParts()...)
	}
	result.Queued = answer.Queued
	return result, nil
}

func texts(entries map[string]json.RawMessage) map[string]string {
	as := make(map[string]string, len(entries))
	for key, value := range entries {
		as[key] = string(value)
	}
	return as
}
