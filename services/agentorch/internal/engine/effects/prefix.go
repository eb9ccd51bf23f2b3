package effects

import (
	"context"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// maxPart bounds the messages of a request in bytes, which leaves room for the rest of the request. A single larger
// message is sent by itself.
const maxPart = 3 << 20

// callMessages is the messages of a model call.
type callMessages struct {
	messages []*modelv1.ChatMessage
	// links are the links of the messages; nil if they cannot be computed, and then all messages are one request.
	links []run.Link
	// told is the number of leading messages that modelgw may already have.
	told int
}

// messagesOf returns the messages of the call of an intent.
func messagesOf(f *run.Frame, i *agentv1.ModelIntent) callMessages {
	var c run.Conversation
	if i.GetContent() != nil {
		c.Append(i.GetContent().GetMessages()...)
		return from(&c, c.Len())
	}
	return from(f.Sent(), min(int(i.GetMessageCount()), f.Sent().Len()))
}

func from(c *run.Conversation, n int) callMessages {
	links, err := c.Links(n)
	if err != nil {
		links = nil // The call fails with the reason.
	}
	return callMessages{messages: c.Messages()[:n:n], links: links, told: min(c.Told(), n)}
}

// ask is a call with the messages that follow a prefix.
type ask[T any] func(ctx context.Context, prefix *modelv1.MessagePrefix, rest []*modelv1.ChatMessage) (T, error)

// prefix identifies the first n messages; nil for n = 0.
func (s *callMessages) prefix(n int) *modelv1.MessagePrefix {
	if n == 0 || s.links == nil {
		return nil
	}
	return &modelv1.MessagePrefix{Hash: s.links[n-1].Hash.String(), Count: int32(n)}
}

// part returns the end of the messages, from n on, that fit into one request: at least one message, if any is left.
func (s *callMessages) part(n int) int {
	if s.links == nil {
		return len(s.messages)
	}
	sent, end := 0, n
	if n > 0 {
		sent = s.links[n-1].Bytes
	}
	for end < len(s.messages) && (end == n || s.links[end].Bytes-sent <= maxPart) {
		end++
	}
	return end
}

// generate calls the model with what follows a prefix that modelgw has.
func (c *modelCall) generate(ctx context.Context, prefix *modelv1.MessagePrefix, rest []*modelv1.ChatMessage) (*modelv1.GenerateResponse, error) {
	c.request.Prefix, c.request.Messages = prefix, rest
	return c.client.Generate(ctx, c.request)
}

// callCompact is generate for a compaction.
func (c *modelCall) callCompact(ctx context.Context, prefix *modelv1.MessagePrefix, rest []*modelv1.ChatMessage) (*modelv1.CompactResponse, error) {
	r := c.request
	return c.client.Compact(ctx, &modelv1.CompactRequest{
		Parent: r.GetParent(), RequestId: r.GetRequestId(), Attribution: r.GetAttribution(), Model: r.GetModel(), Account: r.GetAccount(), BaseUrl: r.GetBaseUrl(),
		ModelArgsJson: r.GetModelArgsJson(), Messages: rest, Prefix: prefix, Tools: r.GetTools(), Instructions: c.instructions, Config: r.GetConfig(),
		RecordCall: r.GetRecordCall(), RecordFailedCall: r.GetRecordFailedCall(),
	})
}

// send has a call continue the part of the conversation that modelgw has stored, and sends all messages if it has none.
// Messages beyond the size of one request precede the call, in parts.
func send[T any](ctx context.Context, c *modelCall, call ask[T]) (T, error) {
	answer, err := sendRest(ctx, c, c.said.told, call)
	if !unknown(err) {
		return answer, err
	}
	if answer, err = sendRest(ctx, c, 0, call); unknown(err) { // Modelgw has just evicted its copy.
		return answer, rpcerr.ServiceUnavailable(peers.Modelgw, time.Second, "%s did not keep the conversation that was sent: %w", peers.Modelgw, err)
	}
	return answer, err
}

// sendRest sends the messages after the first n, which modelgw has, with the call at the end.
func sendRest[T any](ctx context.Context, c *modelCall, n int, call ask[T]) (answer T, err error) {
	for {
		prefix, messages := c.said.prefix(n), c.said.messages
		end := c.said.part(n)
		if prefix != nil {
			messages = messages[n:]
		}
		if end == len(c.said.messages) {
			return call(ctx, prefix, messages)
		}
		_, err := c.client.ExtendPrefix(ctx, &modelv1.ExtendPrefixRequest{Parent: c.request.GetParent(), Prefix: prefix, Messages: c.said.messages[n:end]})
		if err != nil {
			return answer, err
		}
		n = end
	}
}

func unknown(err error) bool {
	return rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PREFIX_UNKNOWN)
}
