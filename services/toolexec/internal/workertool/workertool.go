// Package workertool makes tools of the offers of workers. Callers cannot distinguish them from other tools.
//
// The call that a worker receives, and its answer, are the JSON forms of ToolPayload and ToolResultPayload. An answer
// that cannot be decoded is an error for the model, as if a command had printed nonsense; the worker stays connected.
// Package worker handles pools, lost workers and the wait for a worker.
package workertool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// Kind is the kind of offer that is a tool.
const Kind = "tool"

// noParameters is the schema of a tool whose offer names none.
const noParameters = `{"type":"object","properties":{},"additionalProperties":false}`

// Source has the tools of a host's workers.
type Source struct{ host *worker.Host }

// New returns the source of a host's tools.
func New(host *worker.Host) *Source { return &Source{host: host} }

// Offers returns the kind of offer that a host serves as tools: registry checks the definition for the model.
func Offers(registry *tool.Registry) worker.Kind {
	return worker.Kind{Name: Kind, Check: func(offer *workerv1.Offer) error { return registry.CheckDefinition(Definition(offer).GetInfo()) }}
}

// Definition returns the definition of the tool in an offer.
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

// served is a tool that workers serve.
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
	var result *tool.Result
	answer, err := s.host.Do(ctx, worker.Call{
		Key: call.Key, Kind: Kind, Name: name, PayloadJSON: string(payload), OnUnknown: public.GetOnUnknown(), Timeout: public.GetTimeout().AsDuration(), Progress: call.Progress, Lost: call.Again,
		Read: func(payload string) (err error) { result, err = Read(payload, call.Store); return err },
	})
	unusable, isUnusable := errors.AsType[*worker.UnusableError](err)
	switch {
	case isUnusable:
		return nil, tool.Errorf("the worker %s, which serves %s, answered what is of no use: %v; the call may have taken effect", unusable.Worker, name, unusable.Err)
	case errors.Is(err, worker.ErrTimeout):
		return nil, &tool.Error{
			Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, Message: name + " did not answer within " + public.GetTimeout().AsDuration().Round(time.Millisecond).String(),
		}
	case errors.Is(err, worker.ErrUnknown):
		return nil, errors.Join(tool.ErrIndeterminate, err)
	case err != nil:
		return nil, err
	case answer.Error.GetFatal():
		return nil, rpcerr.WorkerFailed(Kind, name, "its worker says that the call failed for good: %s: %s", answer.Error.GetType(), answer.Error.GetMessage())
	case answer.Error != nil:
		return nil, &tool.Error{Type: chat.ToolErrorType(answer.Error.GetType()), Message: answer.Error.GetMessage()}
	}
	result.Queued = answer.Queued
	return result, nil
}

// Read decodes a payload into a result and changes of the store, or returns the reason why it cannot. If the text is
// another value, such as a number or a list, the model receives its JSON.
func Read(payload string, store *tool.Store) (*tool.Result, error) {
	sent := &workerv1.ToolResultPayload{}
	if err := worker.Unmarshal(asText(payload), sent); err != nil {
		return nil, err
	}
	if sent.GetText() == "" && len(sent.GetParts()) == 0 && len(sent.GetStoreChanges()) == 0 && !names(payload, "text") {
		return nil, errors.New(`it says nothing; answer {"text": "…"}, which may be empty, or {"parts": […]}`)
	}
	for i, part := range sent.GetParts() {
		if err := checkPart(fmt.Sprintf("parts[%d]", i), part); err != nil {
			return nil, err
		}
	}
	if err := store.Apply(sent.GetStoreChanges()); err != nil {
		return nil, err
	}
	if len(sent.GetParts()) > 0 {
		return tool.Parts(sent.GetParts()...), nil
	}
	return tool.Text(sent.GetText()), nil
}

// asText returns a payload whose text, if it is another value, is replaced by the value's JSON. Numbers stay as they
// are written.
func asText(payload string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(payload), &members) != nil {
		return payload // the decoder rejects it
	}
	var value bytes.Buffer
	switch given := members["text"]; {
	case given == nil, given[0] == '"', string(given) == "null", json.Compact(&value, given) != nil:
		return payload
	}
	text, err := json.Marshal(value.String())
	members["text"] = text
	document, failure := json.Marshal(members)
	if errors.Join(err, failure) != nil {
		return payload
	}
	return string(document)
}

// names reports whether a JSON object has a member.
func names(payload, member string) bool {
	var members map[string]json.RawMessage
	err := json.Unmarshal([]byte(payload), &members)
	_, named := members[member]
	return err == nil && named
}

// checkPart rejects a part without content, or whose image, audio or document is missing.
func checkPart(at string, part *contentv1.Content) error {
	var media interface{ GetMedia() *contentv1.Media }
	switch kind := part.GetPart().(type) {
	case nil:
		return fmt.Errorf("%s is empty; write text, image, audio, video, document, data or another kind of content", at)
	case *contentv1.Content_Image:
		at, media = at+".image", kind.Image
	case *contentv1.Content_Audio:
		at, media = at+".audio", kind.Audio
	case *contentv1.Content_Video:
		at, media = at+".video", kind.Video
	case *contentv1.Content_Document:
		at, media = at+".document", kind.Document
	default:
		return nil
	}
	uri := media.GetMedia().GetUri()
	switch {
	case media.GetMedia().GetBlob().GetHash() != "":
		return nil
	case strings.HasPrefix(uri, "data:"):
		return dialect.CheckDataURI(at+".media.uri", uri)
	}
	if place, err := url.Parse(uri); err != nil || place.Host == "" {
		return fmt.Errorf("%s.media: there is no %s to be had; give a uri, data:<media type>;base64,<data> or https://…, or a blob", at, at[strings.LastIndexByte(at, '.')+1:])
	}
	return nil
}

func texts(entries map[string]json.RawMessage) map[string]string {
	as := make(map[string]string, len(entries))
	for key, value := range entries {
		as[key] = string(value)
	}
	return as
}
