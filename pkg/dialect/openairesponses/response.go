package openairesponses

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// States of an answer.
const (
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusInProgress = "in_progress"
	statusQueued     = "queued"
	statusFailed     = "failed"
)

// Reasons why an answer is incomplete.
const (
	reasonLength = "max_output_tokens"
	reasonFilter = "content_filter"
)

// response is an answer on the wire.
type response struct {
	ID         string          `json:"id"`
	Model      string          `json:"model"`
	Status     string          `json:"status"`
	Error      json.RawMessage `json:"error"`
	Incomplete incomplete      `json:"incomplete_details"`
	Items      []item          `json:"output"`
	Usage      *usage          `json:"usage"`
	Metadata   json.RawMessage `json:"metadata"`
	// Tier is the service tier that served the request.
	Tier string `json:"service_tier"`
}

// incomplete explains why an answer is incomplete.
type incomplete struct {
	Reason string `json:"reason"`
}

type usage struct {
	Input   dialect.Tokens `json:"input_tokens"`
	Output  dialect.Tokens `json:"output_tokens"`
	Total   dialect.Tokens `json:"total_tokens"`
	Details struct {
		Cached  *dialect.Tokens `json:"cached_tokens"`
		Written *dialect.Tokens `json:"cache_write_tokens"`
		// Created is Perplexity's name of Written.
		Created *dialect.Tokens `json:"cache_creation_input_tokens"`
	} `json:"input_tokens_details"`
	// ToolCalls counts calls of Perplexity's own tools.
	ToolCalls struct {
		Search struct {
			Count *int64 `json:"invocation"`
		} `json:"search_web"`
	} `json:"tool_calls_details"`
	OutputDetails struct {
		Reasoning *dialect.Tokens `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
}

// malformed is the error for a body that is not an answer in the format; cause may be nil.
func malformed(cause error) error {
	return &dialect.MalformedError{Answer: "response", Cause: cause}
}

// DecodeResponse implements dialect.Codec.
func (c Codec) DecodeResponse(body []byte) (dialect.Response, error) {
	r := &response{}
	if err := jsonread.Unmarshal(body, r); err != nil {
		return nil, malformed(err)
	}
	switch {
	case r.Status == statusFailed, r.Items == nil && jsonread.IsSet(r.Error):
		return nil, c.DecodeError(body)
	case r.Items == nil:
		return nil, malformed(nil)
	case r.Status == "":
		r.Status = statusCompleted // Some servers leave it out.
	}
	return r, nil
}

// Pending returns the id of an answer that the server still makes in the background; ok is false for any other.
func Pending(r dialect.Response) (id string, ok bool) {
	own, ok := r.(*response)
	if !ok || own.Status != statusQueued && own.Status != statusInProgress {
		return "", false
	}
	return own.ID, true
}

// Output implements dialect.Response. All items are one choice.
func (r *response) Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	m := chat.Generated(r.Model)
	m.Content = chat.ListContent()
	choice := &modelv1.Choice{Message: m}
	list := m.GetContent().GetList()
	for i := range r.Items {
		it := &r.Items[i]
		if it.Type == typeCall && it.Name != "" {
			m.ToolCalls = append(m.ToolCalls, dialect.ToolCall(it.CallID, it.Name, string(it.Arguments), tools))
			continue
		}
		if call := it.computerCall(); call != nil {
			m.ToolCalls = append(m.ToolCalls, call)
			continue
		}
		list.Parts = append(list.Parts, it.parts()...)
		choice.Logprobs = appendLogprobs(choice.GetLogprobs(), it.Content)
	}
	choice.StopReason = r.stopReason(len(m.GetToolCalls()) > 0)
	choice.StopDetails = r.refused(m)
	output := dialect.NewOutput(r.ID, r.Model, r.Usage.message(), choice)
	if jsonread.IsSet(r.Metadata) && string(r.Metadata) != "{}" {
		output.MetadataJson = string(r.Metadata)
	}
	return output, nil
}

// Found is an item of an answer that Output does not read, such as what a tool of the server found.
type Found struct {
	// Type is the item's, such as `search_results`.
	Type string
	// Results are JSON objects.
	Results []json.RawMessage
}

// Found returns the items of other kinds than [Response.Output] reads, such as the results of a server's own tools.
//
// [Response.Output]: https://pkg.go.dev/github.com/evalfleet/evalfleet/pkg/dialect#Response
func (r *response) Found() []Found {
	known := []string{typeMessage, typeReasoning, typeImage, typeCall, typeComputer}
	var all []Found
	for i := range r.Items {
		if it := &r.Items[i]; it.Use == nil && !slices.Contains(known, it.Type) {
			all = append(all, Found{it.Type, append(it.Results, it.Contents...)})
		}
	}
	return all
}

// Searches returns how often the server searched the web, if it says so.
func (r *response) Searches() *int64 {
	if r.Usage == nil {
		return nil
	}
	return r.Usage.ToolCalls.Search.Count
}

// stopReason is why the answer ended; an answer that was cut off has not. Calls go before what ended the answer after
// them.
func (r *response) stopReason(calls bool) modelv1.StopReason {
	switch {
	case calls && (r.Status == statusCompleted || r.Status == statusIncomplete):
		return modelv1.StopReason_STOP_REASON_TOOL_CALLS
	case r.Status == statusIncomplete && r.Incomplete.Reason == reasonLength:
		return modelv1.StopReason_STOP_REASON_MAX_TOKENS
	case r.Status == statusIncomplete && r.Incomplete.Reason == reasonFilter:
		return modelv1.StopReason_STOP_REASON_CONTENT_FILTER
	case r.Status == statusCompleted:
		return modelv1.StopReason_STOP_REASON_STOP
	default:
		return modelv1.StopReason_STOP_REASON_UNKNOWN
	}
}

// refused explains the refusals of the model; nil if it did not refuse.
func (r *response) refused(m *modelv1.ChatMessage) *modelv1.StopDetails {
	var said []string
	for _, part := range m.GetContent().GetList().GetParts() {
		if part.GetText().GetRefusal() {
			said = append(said, part.GetText().GetText())
		}
	}
	if len(said) == 0 {
		return nil
	}
	kind := openai.KindRefusal
	if r.Incomplete.Reason == reasonFilter {
		kind = reasonFilter
	}
	return chat.NewStopDetails(kind, "", strings.Join(said, "\n"))
}

func appendLogprobs(m *modelv1.Logprobs, parts []part) *modelv1.Logprobs {
	for _, part := range parts {
		for i := range part.Logprobs {
			m = cmp.Or(m, &modelv1.Logprobs{})
			m.Content = append(m.Content, part.Logprobs[i].Message())
		}
	}
	return m
}

// message is the usage in the canonical form; nil if there is none, or if it is impossible.
func (u *usage) message() *modelv1.ModelUsage {
	if u == nil {
		return nil
	}
	return dialect.CacheApart(&modelv1.ModelUsage{
		InputTokens: int64(u.Input), OutputTokens: int64(u.Output), TotalTokens: int64(u.Total),
		InputTokensCacheRead:  unlessZero(u.Details.Cached),
		InputTokensCacheWrite: unlessZero(cmp.Or(u.Details.Written, u.Details.Created)),
		ReasoningTokens:       (*int64)(u.OutputDetails.Reasoning),
	})
}

// unlessZero is a count; zero is none, since the server sends it whether or not it caches.
func unlessZero(n *dialect.Tokens) *int64 {
	if n == nil || *n == 0 {
		return nil
	}
	return (*int64)(n)
}

// Billing implements dialect.Biller.
func (r *response) Billing() dialect.Billing { return dialect.Billing{Mode: openai.Mode(r.Tier)} }
