package openai

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

// Compact implements provider.Compactor, for calls that use the Responses API.
func (m *model) Compact(ctx context.Context, r *provider.Request, instructions string) (*provider.Response, error) {
	r, restore := responsesapi.Renamed(r)
	request := m.responsesRequest(r)
	var compacted []*modelv1.ChatMessage
	encode := func(dst []byte) ([]byte, error) { return request.AppendCompact(dst, instructions) }
	response, err := m.responses.Attempt(r, encode, func(body *buffer.Buffer) (*modelv1.ModelOutput, []byte, error) {
		left := r.AnswerBound()
		call := &exchange.Call{
			URL: provider.Below(m.responsesURL, "/compact"), Header: m.client.Header(r), Model: m.served,
		}
		answer, err := m.responses.Post(ctx, r, call, body, &left)
		if err != nil {
			return nil, answer.Raw, err
		}
		if answer.Stopped != nil {
			return nil, answer.Raw, provider.NotCompacted(Name, answer.Stopped)
		}
		var usage *modelv1.ModelUsage
		if compacted, usage, err = answer.Response.(openairesponses.Compaction).Compacted(r.Tools); err != nil { // as its codec documents
			return nil, answer.Raw, m.responses.Malformed(err)
		}
		return &modelv1.ModelOutput{Model: m.served, Usage: usage}, answer.Raw, nil
	})
	if failure, ok := provider.As(err); ok && responsesapi.LacksAddress(failure) {
		return nil, provider.NoCompaction(Name+"/"+m.name.id, "is at a server without compaction", failure)
	}
	if err != nil {
		return nil, err
	}
	for _, message := range compacted {
		if message.GetRole() == modelv1.Role_ROLE_ASSISTANT {
			message.Model = m.served
			restore(&modelv1.ModelOutput{Choices: []*modelv1.Choice{{Message: message}}})
		}
	}
	response.Compacted = compacted
	return response, nil
}
