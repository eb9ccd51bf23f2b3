package call

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prefixcache"
)

// ExtendPrefix stores messages for a later call, and returns the prefix that identifies them together with those of
// their own prefix.
func (c *Calls) ExtendPrefix(r *modelv1.ExtendPrefixRequest) (*modelv1.MessagePrefix, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	longer, err := c.conversation(project, r.GetPrefix(), r.GetMessages())
	if err != nil {
		return nil, err
	}
	c.deps.Memory.Keep(project, longer)
	return longer.Prefix(), nil
}

// conversation returns the conversation of a request: its messages, after those that its prefix identifies.
func (c *Calls) conversation(project string, p *modelv1.MessagePrefix, messages []*modelv1.ChatMessage) (prefixcache.Conversation, error) {
	var before prefixcache.Conversation
	if p != nil {
		var held bool
		if before, held = c.deps.Memory.Get(project, p); !held {
			return before, rpcerr.PrefixUnknown(p.GetHash(), "the prefix is not held here; send all messages, or extend a prefix by them in parts")
		}
	}
	all, err := before.Extend(messages...)
	c.deps.Memory.Weigh(all)
	if err == nil && all.Bytes() > bound.ConversationBytes {
		err = rpcerr.RequestTooLarge("messages", bound.ConversationBytes, "the conversation has %d bytes and may have %d; leave out messages", all.Bytes(), bound.ConversationBytes)
	}
	return all, err
}

// keep stores the conversation of a call with its answer, and completes the answer's message, since the caller adds it
// to the conversation unchanged. It returns the prefix of both; nil if that has no form on the wire.
func (c *Calls) keep(w *work, output *modelv1.ModelOutput) *modelv1.MessagePrefix {
	answered := w.asked
	if message := chat.FirstMessage(output); message != nil {
		message.Id, message.Source = cmp.Or(message.GetId(), chat.NewID()), modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
		var err error
		if answered, err = w.asked.Extend(message); err != nil {
			return nil // and the answer cannot be sent either
		}
	}
	c.deps.Memory.Keep(w.call.Origin.Project, w.asked, answered)
	return answered.Prefix()
}
