package endpoint

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/summary"
)

// A client may ask for its conversation to be compacted in place of an answer: what it gets replaces the conversation
// in its later requests. In the direct lane the vendor compacts it. Any other model is asked for a summary.

// compactPath is the path of a request for a compaction alone, below the address of requests.
const compactPath = "/compact"

// compact answers a request for nothing but a compaction, in the lane that fits. Some servers of the format have no
// such path; there the model is asked for a summary.
func (e *Endpoints) compact(ctx context.Context, x *exchange) error {
	x.compacts = true
	return e.ask(ctx, x, compactPath)
}

// compacted is the shape of a summary.
type compacted struct {
	*format
	// alone means that nothing else was asked for, and said is what the user said, which the answer then has too.
	alone bool
	said  []*modelv1.ChatMessage
}

// compaction makes a request one for a summary of its conversation. Tools stay on offer, since some vendors refuse
// calls in a conversation without them, but none may be called.
func (x *exchange) compaction(a *dialect.Request) (*dialect.Request, *compacted, error) {
	said := func(m *modelv1.ChatMessage) bool { return m.GetRole() != modelv1.Role_ROLE_SYSTEM }
	if !slices.ContainsFunc(a.Messages, said) {
		return nil, nil, dialect.Invalid(x.about.Messages, "has no conversation to compact")
	}
	s := &compacted{format: x.format, alone: x.compacts}
	for _, m := range a.Messages { // The model may get one otherwise, with media in place of an address.
		if s.alone && m.GetRole() == modelv1.Role_ROLE_USER && !replacesEarlier(m) {
			s.said = append(s.said, proto.CloneOf(m))
		}
	}
	asked := *a
	asked.Messages = append(slices.Clone(a.Messages), chat.User(summary.Prompt))
	asked.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE)
	asked.Config = chat.Merge(a.Config)
	asked.Config.ResponseSchema = nil
	asked.Config.Logprobs, asked.Config.TopLogprobs = nil, nil
	return &asked, s, nil
}

// replacesEarlier reports whether a message replaces earlier ones, which a new summary covers.
func replacesEarlier(m *modelv1.ChatMessage) bool {
	return summary.Is(m) || slices.ContainsFunc(chat.Parts(m.GetContent()), dialect.IsCompaction)
}

// delta is nothing: a summary is sealed whole.
func (*compacted) delta(*modelv1.GenerateDelta) *modelv1.GenerateDelta {
	return &modelv1.GenerateDelta{}
}

// end makes the compacted conversation of a summary. An incomplete summary is refused with a status after which clients
// do not ask again, since each attempt would cost all of the conversation.
func (s *compacted) end(output *modelv1.ModelOutput) (*modelv1.ModelOutput, error) {
	refused := func(why string) error {
		r := refuse(http.StatusUnprocessableEntity, "the conversation was not compacted: "+why)
		r.final = true
		return r
	}
	m, stop := chat.FirstMessage(output), chat.StopReason(output)
	text := strings.TrimSpace(chat.Text(m))
	switch {
	case stop == modelv1.StopReason_STOP_REASON_MAX_TOKENS, stop == modelv1.StopReason_STOP_REASON_MODEL_LENGTH:
		return nil, refused("the summary was cut off by the bound of its tokens; give more " + s.about.OutputBounds[0] + ", or a shorter conversation")
	case stop == modelv1.StopReason_STOP_REASON_CONTENT_FILTER, chat.Refuses(m):
		return nil, refused("the model refused to summarise it")
	case len(m.GetToolCalls()) > 0:
		return nil, refused("the model called a tool in place of a summary")
	case text == "":
		return nil, refused("the model wrote no summary")
	}
	message := chat.Generated(output.GetModel())
	message.Content = chat.ListContent(s.compactor.Compacted(text))
	whole := chat.MessageOutput(output.GetModel(), message, modelv1.StopReason_STOP_REASON_STOP)
	whole.Usage = output.GetUsage()
	return whole, nil
}

func (s *compacted) body(dst []byte, output *modelv1.ModelOutput, about dialect.ResponseMeta) ([]byte, error) {
	if s.alone {
		return s.compactor.AppendCompactResponse(dst, s.said, output, about)
	}
	return s.AppendResponse(dst, output, about)
}
