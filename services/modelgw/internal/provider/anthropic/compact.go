package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

const (
	// compactFrom is the least number of input tokens that the server compacts.
	compactFrom = 50_000
	// goOn is the user's message after a summary: a conversation must not end with the model.
	goOn = "Please continue working."
)

// errNotCompacted is the cause of the failure of a model that did not compact.
var errNotCompacted = errors.New("the model did not compact")

// Compact implements provider.Compactor: it generates with an edit of the context that makes the model write a summary
// and stop. https://platform.claude.com/docs/en/build-with-claude/compaction
func (m *model) Compact(ctx context.Context, r *provider.Request, instructions string) (*provider.Response, error) {
	p, err := m.plan(r)
	if err != nil {
		return nil, err
	}
	p.compactNow(instructions, m.site)
	whole, brokenOff := *r, false
	whole.Unfinished = func(said *modelv1.ModelUsage, pieces int64) {
		if !brokenOff && r.Unfinished != nil { // What broke off is a failure too, and counts once.
			r.Unfinished(said, pieces)
		}
		brokenOff = true
	}
	var message *modelv1.ChatMessage
	response, err := m.generate(ctx, p, &whole, func(output *modelv1.ModelOutput) (*modelv1.ModelOutput, error) {
		message = chat.FirstMessage(output)
		switch reason := chat.StopReason(output); {
		case brokenOff:
			return nil, &provider.Error{Provider: Name, Class: provider.Transient, Status: http.StatusOK, Message: "the stream ended before the end of the summary"}
		case summarized(message) && reason == modelv1.StopReason_STOP_REASON_MAX_TOKENS: // The rest of the conversation would be lost.
			return nil, &provider.Error{Provider: Name, Status: http.StatusOK, Message: "the summary did not fit into max_tokens; raise it, or leave it out"}
		case summarized(message):
			return &modelv1.ModelOutput{Model: output.GetModel(), Usage: output.GetUsage()}, nil
		case reason == modelv1.StopReason_STOP_REASON_MODEL_LENGTH:
			return nil, provider.NotCompacted(Name, output)
		default:
			return nil, &provider.Error{Provider: Name, Status: http.StatusOK, Message: enum.Word(reason), Cause: errNotCompacted}
		}
	})
	if failure, ok := provider.As(err); ok {
		switch {
		case errors.Is(failure, errNotCompacted):
			return nil, provider.NoCompaction(Name+"/"+m.fullName(), "wrote no summary: it compacts from "+strconv.Itoa(compactFrom)+" tokens of input, and may fail to", failure)
		case refusesCompaction(failure):
			return nil, provider.NoCompaction(Name+"/"+m.fullName(), "is served without compaction ("+failure.Error()+")", failure)
		}
	}
	if err != nil {
		return nil, err
	}
	// Reasoning about the summary is not about the task.
	list := message.GetContent().GetList()
	list.Parts = slices.DeleteFunc(list.GetParts(), func(part *contentv1.Content) bool { return part.GetReasoning() != nil })
	response.Compacted = []*modelv1.ChatMessage{message, chat.User(goOn)}
	return response, nil
}

// refusesCompaction reports whether the server refused a request because the model, or the server itself, does not
// compact. A server that does not know the preview feature takes the edit of the context for a member too many.
func refusesCompaction(e *provider.Error) bool {
	if e.Status != http.StatusBadRequest {
		return false
	}
	if strings.Contains(e.Message, contextMember+": Extra inputs are not permitted") || strings.Contains(e.Message, "invalid beta flag") {
		return true
	}
	return strings.Contains(e.Message, "does not support") && (strings.Contains(e.Message, "context management") || strings.Contains(e.Message, "compact"))
}

// compactNow makes the server compact the conversation, and not continue it. The site's members of the body name the
// preview feature, too.
func (p *plan) compactNow(instructions string, at *site) {
	edit := compaction(compactFrom)
	if instructions != "" {
		edit.Set("instructions", instructions)
	}
	edit.Set("pause_after_compaction", true)
	management := &orderedjson.Object{}
	management.Set("edits", []any{edit})
	p.betas = append(p.betas, betaCompaction)
	p.setMember(contextMember, orderedjson.Append(nil, management))
	for _, own := range at.members(trimmed(p.betas)) {
		p.setMember(own.Name, []byte(own.JSON))
	}
}

// compaction is an edit of the context that compacts it from a number of tokens of input on.
func compaction(from int64) *orderedjson.Object {
	trigger, edit := &orderedjson.Object{}, &orderedjson.Object{}
	trigger.Set("type", "input_tokens")
	trigger.Set("value", json.Number(strconv.FormatInt(from, 10)))
	edit.Set("type", compactEdit)
	edit.Set("trigger", trigger)
	return edit
}

// setMember sets a member of the request to a JSON value, in place of one of the same name.
func (p *plan) setMember(name string, value []byte) {
	p.Members = slices.DeleteFunc(p.Members, func(m dialect.Member) bool { return m.Name == name })
	p.Members = append(p.Members, dialect.Member{Name: name, JSON: string(value)})
}

// kept reports which of the server's own blocks a conversation contains. The server accepts them only in requests that
// enable the features that produced them.
func kept(messages []*modelv1.ChatMessage) (compaction, fallback bool) {
	for _, m := range messages {
		for _, part := range m.GetContent().GetList().GetParts() {
			kind, _ := format.Kept.Block(part)
			compaction = compaction || kind == format.CompactionBlock
			fallback = fallback || kind == format.FallbackBlock
		}
	}
	return compaction, fallback
}

// summarized reports whether a message contains the server's summary of the messages before it. The server may fail to
// write one, and then its block is empty.
func summarized(m *modelv1.ChatMessage) bool {
	return slices.ContainsFunc(m.GetContent().GetList().GetParts(), func(part *contentv1.Content) bool {
		kind, block := format.Kept.Block(part)
		if kind != format.CompactionBlock {
			return false
		}
		summary, _ := block.Get("content")
		return summary != nil && summary != ""
	})
}
