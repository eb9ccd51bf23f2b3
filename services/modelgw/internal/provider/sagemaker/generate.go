package sagemaker

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/toolschema"
)

// codec is chat completions behind SageMaker, which words the errors of a model's container in its own.
type codec struct{ openaichat.Codec }

// DecodeError implements dialect.Codec.
func (c codec) DecodeError(body []byte) *dialect.Error {
	var said struct {
		Message string `json:"Message"`
		Type    string `json:"__type"`
		// Original is what the container said, and Status its status; 0 if it did not answer in time.
		Original string `json:"OriginalMessage"`
		Status   *int   `json:"OriginalStatusCode"`
	}
	if json.Unmarshal(body, &said) != nil || said.Message == "" {
		return c.Codec.DecodeError(body)
	}
	e := &dialect.Error{Message: said.Message, Type: modelError}
	if said.Original != "" {
		e.Message = c.Codec.DecodeError([]byte(said.Original)).Message
	}
	if said.Status == nil {
		e.Type = bedrockconverse.ErrorType(said.Type)
		return e
	}
	e.Transient = *said.Status == 0 || *said.Status == http.StatusServiceUnavailable || *said.Status == http.StatusGatewayTimeout
	e.Code = strconv.Itoa(*said.Status)
	return e
}

// modelError is the type of errors of the container.
const modelError = "ModelError"

// quirks interpret the errors of the API. Those of a container are repeated where it was not there, or late;
// SageMaker's own by their type, if AWS's clients repeat that, or else by their status.
var quirks = exchange.Quirks{
	Header: awsauth.AddType,
	Auth:   awsauth.Refuses,
	Stop: func(_ int, said *dialect.Error, model string) (*modelv1.ModelOutput, bool) {
		if said.Type != modelError || !strings.Contains(said.Message, "maximum context length") {
			return nil, false
		}
		return chat.MessageOutput(model, chat.Assistant(said.Message), modelv1.StopReason_STOP_REASON_MODEL_LENGTH), true
	},
	Class: func(_ int, said *dialect.Error, class provider.Class) provider.Class {
		own, known := awsauth.ClassOf(said)
		switch {
		case known:
			return own
		case said.Type != modelError:
			return class
		case said.Transient:
			return provider.Transient
		default:
			return provider.Final
		}
	},
}

// Generate implements provider.Provider.
func (m *model) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	client, err := m.account.signer.Client(ctx, m.region)
	if err != nil {
		return nil, err
	}
	endpoint, err := m.endpoint()
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if m.args.InferenceComponentName != "" {
		header.Set("X-Amzn-Sagemaker-Inference-Component", m.args.InferenceComponentName)
	}
	request := m.request(r)
	if request.Stream {
		header.Set("Accept", "application/vnd.amazon.eventstream")
		header.Set("X-Amzn-Sagemaker-Accept", "text/event-stream")
	}
	x := &exchange.Exchange{Codec: client.Codec(codec{}), HTTP: client.HTTP, Provider: Name, Quirks: quirks}
	call := &exchange.Call{URL: endpoint + m.path(request.Stream), Header: header, Model: m.name, Stream: request.Stream}
	response, err := x.Do(ctx, r, call, request.Append)
	if failure, ok := provider.As(err); ok && failure.Auth {
		m.account.signer.Forget()
	}
	return response, err
}

// noEffort is the effort that such servers do not have.
const noEffort = "none"

// efforts are the words of such servers for efforts that they do not have.
var efforts = map[string]string{"minimal": "low", "xhigh": "high", "max": "high"}

// request makes the upstream request.
func (m *model) request(r *provider.Request) *openaichat.Request {
	c := chat.Merge(chat.Changed(r.Config, m.Changed(r.Config)))
	if c.GetReasoningEffort() == noEffort {
		c.ReasoningEffort = nil
	}
	if c.PromptLogprobs == nil {
		c.PromptLogprobs = m.args.PromptLogprobs
	}
	if schema := c.GetResponseSchema(); schema != nil {
		schema.JsonSchema = dialect.EditSchema(schema.GetJsonSchema(), dialect.DropBounds)
	}
	request := &openaichat.Request{ModelInAddress: true, AnswerParts: true, Request: dialect.Request{
		Model: m.name, Messages: r.Messages, Tools: toolschema.Edit(r.Tools, dialect.DropBounds), Choice: r.ToolChoice, Config: c,
		Stream: r.Streams(m.args.Stream) && (m.args.Stream != nil || c.PromptLogprobs == nil), Members: members(r.Messages, c),
	}}
	if !request.Stream {
		request.Members = append(request.Members, dialect.Member{Name: "stream", JSON: "false"})
	}
	return request
}

// members are members that chat completions do not have.
func members(messages []*modelv1.ChatMessage, c *modelv1.GenerateConfig) (all []dialect.Member) {
	if c.TopK != nil {
		all = append(all, dialect.Member{Name: "top_k", JSON: strconv.Itoa(int(c.GetTopK()))})
	}
	if c.BestOf != nil {
		all = append(all, dialect.Member{Name: "best_of", JSON: strconv.Itoa(int(c.GetBestOf()))})
	}
	return slices.Concat(all, chatapi.ContinueFinal(messages), dialect.Metadata(c))
}
