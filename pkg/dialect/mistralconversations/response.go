package mistralconversations

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// response is an answer on the wire.
type response struct {
	Object  string         `json:"object"`
	ID      string         `json:"conversation_id"`
	Outputs []entry        `json:"outputs"`
	Usage   *mistral.Usage `json:"usage"`
	// cut means that the answer is a stream that broke off.
	cut bool
}

// malformed is the error for a body that is not an answer in the format; cause may be nil.
func malformed(cause error) error {
	return &dialect.MalformedError{Answer: "response of a conversation", Cause: cause}
}

// DecodeResponse implements dialect.Codec.
func (Codec) DecodeResponse(body []byte) (dialect.Response, error) {
	r := &response{}
	if err := jsonread.Unmarshal(body, r); err != nil {
		return nil, malformed(err)
	}
	if r.Object == mistral.ObjectError {
		return nil, Codec{}.DecodeError(body)
	}
	if r.Outputs == nil {
		return nil, malformed(nil)
	}
	return r, nil
}

// Output implements dialect.Response. Entries of unknown types are left out.
func (r *response) Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	m := chat.Generated("")
	var parts []*contentv1.Content
	for i := range r.Outputs {
		e := &r.Outputs[i]
		if e.Model != "" {
			m.Model = e.Model
		}
		switch e.Type {
		case typeOutput:
			parts = append(parts, e.Content.Parts(false)...)
		case typeExecution:
			parts = append(parts, e.toolUse())
		case typeCall:
			if e.Name != "" {
				m.ToolCalls = append(m.ToolCalls, dialect.ToolCall(e.ToolCallID, e.Name, string(e.Arguments), tools))
			}
		}
	}
	m.Content = chat.ListContent(parts...)
	output := chat.MessageOutput(m.GetModel(), m, r.stopReason(len(m.GetToolCalls()) > 0))
	output.Usage = r.Usage.Message()
	if r.ID != "" {
		output.ResponseId = &r.ID
	}
	return output, nil
}

func (r *response) stopReason(calls bool) modelv1.StopReason {
	switch {
	case r.cut:
		return modelv1.StopReason_STOP_REASON_UNKNOWN
	case calls:
		return modelv1.StopReason_STOP_REASON_TOOL_CALLS
	default:
		return modelv1.StopReason_STOP_REASON_STOP
	}
}
