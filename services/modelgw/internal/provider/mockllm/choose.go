package mockllm

import (
	"context"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Where a condition on texts looks.
const (
	inLastUser     = "last_user"
	inLast         = "last"
	inConversation = "conversation"
)

// call is the input of conditions.
type call struct {
	sample   string
	epoch    int32
	role     string
	turn     int32
	messages []*modelv1.ChatMessage
	// texts caches those of the messages, by the place that conditions search.
	texts map[string]string
}

// callOf reads a request. Outside a run, the turn is one more than the answers that the conversation holds.
func callOf(r *provider.Request) call {
	a := r.Origin.Attribution
	c := call{sample: a.GetSample(), epoch: a.GetEpoch(), role: a.GetRole(), turn: a.GetTurn(), messages: r.Messages}
	if c.turn == 0 {
		c.turn = 1
		for _, m := range r.Messages {
			if m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
				c.turn++
			}
		}
	}
	return c
}

// choose returns the answer of the first entry that matches a call, or nil. It ends with ctx: entries and the
// conversation may both be large.
func (s *script) choose(ctx context.Context, c call) (*answer, error) {
	c.texts = map[string]string{}
	own, general := s.bySample[c.sample], s.general
	for len(own)+len(general) > 0 {
		var i int
		if len(general) == 0 || len(own) > 0 && own[0] < general[0] {
			i, own = own[0], own[1:]
		} else {
			i, general = general[0], general[1:]
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if a := s.entries[i].answer(c); a != nil {
			return a, nil
		}
	}
	return nil, nil
}

// answer returns an entry's answer to a call, or nil if the entry does not match.
func (e *entry) answer(c call) *answer {
	fits := is(e.Epoch, c.epoch) && is(e.Role, c.role) && is(e.Turn, c.turn) &&
		(e.Sample == nil || string(*e.Sample) == c.sample) &&
		(e.MinTurn == nil || c.turn >= *e.MinTurn) && (e.MaxTurn == nil || c.turn <= *e.MaxTurn)
	if !fits || !e.says(c) {
		return nil
	}
	if !e.byTurn {
		return e.answers[0]
	}
	if int(c.turn) <= len(e.answers) {
		return e.answers[c.turn-1]
	}
	return nil
}

func is[T comparable](want *T, got T) bool { return want == nil || *want == got }

func (e *entry) says(c call) bool {
	if e.Contains == "" && e.pattern == nil {
		return true
	}
	text, made := c.texts[e.In]
	if !made {
		text = textIn(e.In, c.messages)
		c.texts[e.In] = text
	}
	return strings.Contains(text, e.Contains) && (e.pattern == nil || e.pattern.MatchString(text))
}

func textIn(place string, messages []*modelv1.ChatMessage) string {
	switch place {
	case inConversation:
		var texts []string
		for _, m := range messages {
			texts = append(texts, chat.Text(m))
		}
		return strings.Join(texts, "\n")
	case inLast:
		if len(messages) == 0 {
			return ""
		}
		return chat.Text(messages[len(messages)-1])
	default:
		return chat.Text(chat.LastUser(messages))
	}
}
