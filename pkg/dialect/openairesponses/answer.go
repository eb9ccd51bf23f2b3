package openairesponses

import (
	"cmp"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/dialect/toolname"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// AppendResponse implements dialect.Codec.
func (Codec) AppendResponse(dst []byte, output *modelv1.ModelOutput, meta dialect.ResponseMeta) ([]byte, error) {
	if len(output.GetChoices()) == 0 {
		return nil, dialect.ErrNoChoices
	}
	meta.ID = cmp.Or(meta.ID, output.GetResponseId())
	a := newAnswer(meta)
	a.complete(output)
	choice := output.GetChoices()[0]
	logprobs := choice.GetLogprobs()
	parts, calls := dialect.AnswerParts(choice.GetMessage()), choice.GetMessage().GetToolCalls()
	for i, part := range parts {
		a.items = append(a.items, sealOf(part)...)
		if it := partItem("", part, a.statusOf(i, len(parts)+len(calls)), logprobs); it != "" {
			a.items = append(a.items, it)
		}
		if part.GetText() != nil {
			logprobs = nil
		}
	}
	for i, call := range calls {
		head := newCall(call.GetId(), call.GetFunction(), a.names)
		a.items = append(a.items, head.call(a.statusOf(len(parts)+i, len(parts)+len(calls)), head.argumentsOf(call)))
	}
	w := jsonwrite.Append(dst, dialect.OutputSize(output))
	a.write(w)
	return w.Bytes(), nil
}

// newID makes an id in the form of the vendor's.
func newID(prefix string) string { return prefix + chat.NewID() }

// answer is an answer as it is written: as a body, or in the events at the two ends of a stream.
type answer struct {
	meta dialect.ResponseMeta
	// names are the names of the request's tools.
	names  toolname.Names
	status string
	// reason is why it is incomplete.
	reason string
	// items are the items as JSON.
	items []string
	usage *modelv1.ModelUsage
}

// newAnswer returns an answer in progress.
func newAnswer(meta dialect.ResponseMeta) answer {
	meta.ID, meta.Request = cmp.Or(meta.ID, newID(idPrefix)), cmp.Or(meta.Request, &dialect.Request{})
	return answer{meta: meta, names: toolname.Of(meta.Request.Tools), status: statusInProgress}
}

// complete adds how the answer ended, and its usage.
func (a *answer) complete(output *modelv1.ModelOutput) {
	a.meta.Model = cmp.Or(a.meta.Model, output.GetModel())
	a.status, a.usage = statusIncomplete, output.GetUsage()
	switch chat.StopReason(output) {
	case modelv1.StopReason_STOP_REASON_MAX_TOKENS, modelv1.StopReason_STOP_REASON_MODEL_LENGTH:
		a.reason = reasonLength
	case modelv1.StopReason_STOP_REASON_CONTENT_FILTER:
		a.reason = reasonFilter
	default:
		a.status = statusCompleted
	}
}

// statusOf is the status of one of so many items. The last of an incomplete answer may be cut off: a call among them
// must not be made.
func (a *answer) statusOf(place, items int) string {
	if a.status == statusIncomplete && place == items-1 {
		return statusIncomplete
	}
	return statusCompleted
}

// write writes the answer, with what the vendor's clients require of one.
func (a *answer) write(w *jsonwrite.Writer) {
	w.BeginObject()
	w.TextMember("id", a.meta.ID)
	w.TextMember("object", "response")
	w.IntMember("created_at", a.meta.Created)
	w.TextMember("status", a.status)
	w.RawMember("error", "null")
	if a.reason == "" {
		w.RawMember("incomplete_details", "null")
	} else {
		w.TextObjectMember("incomplete_details", "reason", a.reason)
	}
	w.RawMember("instructions", "null")
	w.RawMember("metadata", "{}")
	w.TextMember("model", a.meta.Model)
	a.writeRepeated(w)
	w.Key("output")
	jsonwrite.RawList(w, a.items)
	w.Key("usage")
	writeUsage(w, a.usage)
	w.EndObject()
}

// writeRepeated writes the members of an answer that repeat its request.
func (a *answer) writeRepeated(w *jsonwrite.Writer) {
	r := a.meta.Request
	w.BoolMember("parallel_tool_calls", r.Config == nil || r.Config.ParallelToolCalls == nil || r.Config.GetParallelToolCalls())
	w.Key("tool_choice")
	kind, label := hosted.OpenAIChosen(r.Choice.GetFunction(), r.Tools)
	writeChoice(w, r.Choice, kind, label, a.names.Of(r.Choice.GetFunction()))
	w.Key("tools")
	for _, t := range jsonwrite.List(w, r.Tools) {
		if offer, ok := hosted.Of(t); ok {
			w.Raw(string(offer.Given))
			continue
		}
		w.BeginObject()
		named := a.names.Of(t.GetName())
		writeName(w, named)
		w.TextMember("description", t.GetDescription())
		if !named.Custom {
			w.RawMember("parameters", t.GetParametersJson())
		}
		w.EndObject()
	}
}

// writeChoice writes a choice among tools: a word, a tool that the vendor runs by its type and its server's label, or
// a client's tool by its name.
func writeChoice(w *jsonwrite.Writer, choice *toolv1.ToolChoice, kind, label string, named toolname.Name) {
	if choice.GetFunction() == "" {
		w.Text(openai.Choices.Word(choice))
		return
	}
	w.BeginObject()
	if kind == "" {
		writeName(w, named)
	} else {
		w.TextMember("type", kind)
		w.TextUnlessEmpty("server_label", label)
	}
	w.EndObject()
}

// writeName writes the members that name a tool.
func writeName(w *jsonwrite.Writer, n toolname.Name) {
	kind := toolFunction
	if n.Custom {
		kind = toolCustom
	}
	w.TextMember("type", kind)
	w.TextUnlessEmpty("namespace", n.Namespace)
	w.TextMember("name", n.Name)
}

func writeUsage(w *jsonwrite.Writer, u *modelv1.ModelUsage) {
	if u == nil {
		w.Null()
		return
	}
	input := chat.InputTokens(u)
	w.BeginObject()
	w.IntMember("input_tokens", input)
	w.BeginObjectMember("input_tokens_details")
	w.IntMember("cached_tokens", u.GetInputTokensCacheRead())
	w.IntMember("cache_write_tokens", u.GetInputTokensCacheWrite())
	w.EndObject()
	w.IntMember("output_tokens", u.GetOutputTokens())
	w.BeginObjectMember("output_tokens_details")
	w.IntMember("reasoning_tokens", u.GetReasoningTokens())
	w.EndObject()
	w.IntMember("total_tokens", max(u.GetTotalTokens(), input+u.GetOutputTokens()))
	w.EndObject()
}

// partItem returns the item for a part of the assistant's content; empty for a part without a place in the format. An
// empty id is the part's own, or a new one. Reasoning has no status. sources are those of a text; none are its own.
func partItem(id string, part *contentv1.Content, status string, logprobs *modelv1.Logprobs, sources ...citation.Annotation) string {
	w := jsonwrite.NewWriter(256)
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		origin := originOf(part)
		beginItem(w, typeMessage, cmp.Or(id, origin.ID, newID("msg_")))
		w.TextMember("status", status)
		w.TextMember("role", "assistant")
		w.TextUnlessEmpty("phase", origin.Phase)
		w.BeginListMember("content")
		if len(sources) == 0 {
			sources = citation.OpenAIOf(p.Text, 0)
		}
		writeText(w, p.Text, sources, logprobs.GetContent()...)
		w.EndList()
	case *contentv1.Content_Reasoning:
		id = cmp.Or(id, nativeID(part), newID(reasoningID))
		beginItem(w, typeReasoning, id)
		writeReasoning(w, part, id)
	case *contentv1.Content_Image:
		mediaType, data, inline := dialect.SplitDataURI(p.Image.GetMedia().GetUri())
		if !inline {
			return ""
		}
		beginItem(w, typeImage, cmp.Or(id, newID("ig_")))
		w.TextMember("status", status)
		w.TextMember("output_format", strings.TrimPrefix(mediaType, "image/"))
		w.TextMember("result", data)
	case *contentv1.Content_ToolUse:
		return hosted.OpenAIItem(p.ToolUse, status)
	case *contentv1.Content_Data:
		return kept.JSON(part)
	default:
		return ""
	}
	w.EndObject()
	return w.String()
}

// sealOf is the item before that of what a tool of another vendor's did, if the client is to keep more of it than its
// item has: reasoning whose seal it is.
func sealOf(part *contentv1.Content) []string {
	if use := part.GetToolUse(); use == nil || !hosted.Sealed(use) {
		return nil
	}
	w := jsonwrite.NewWriter(256)
	beginItem(w, typeReasoning, newID(reasoningID))
	w.RawMember("summary", "[]")
	w.TextMember("encrypted_content", dialect.Seal(part))
	w.EndObject()
	return []string{w.String()}
}

func beginItem(w *jsonwrite.Writer, kind, id string) {
	w.BeginObject()
	w.TextMember("id", id)
	w.TextMember("type", kind)
}

// writeReasoning writes the members of reasoning. What is readable is its summary, whatever it was: a client shows it,
// and sends the sealed form back. The vendor's seal belongs to its own id; under another it is sealed once more.
func writeReasoning(w *jsonwrite.Writer, part *contentv1.Content, id string) {
	w.BeginListMember("summary")
	if text := dialect.Readable(part); text != "" {
		w.TextObject("type", partSummary, "text", text)
	}
	w.EndList()
	if id == nativeID(part) {
		w.TextMember("encrypted_content", part.GetReasoning().GetReasoning())
	} else {
		w.TextMember("encrypted_content", dialect.Seal(part))
	}
}

// itemKind is how a kind of item is written whose text grows in a stream: that of its only part, or a call's arguments.
type itemKind struct {
	// prefix is that of the item's id, itemType its type, and member the text.
	prefix, itemType, member string
	// pieces begins the names of the events of the text.
	pieces string
	// part is the type of the part, around begins the names of its events, and index is the member for its place; calls
	// have no part.
	part, around, index string
}

var (
	functionItem = &itemKind{"fc_", typeCall, "arguments", eventArguments, "", "", ""}
	customItem   = &itemKind{"ctc_", typeCustomCall, "input", eventInput, "", "", ""}
	textItem     = &itemKind{"msg_", typeMessage, "text", eventText, partText, "response.content_part", "content_index"}
	refusalItem  = &itemKind{"msg_", typeMessage, "refusal", eventRefusal, partRefusal, "response.content_part", "content_index"}
	summaryItem  = &itemKind{reasoningID, typeReasoning, "text", eventSummary, partSummary, "response.reasoning_summary_part", "summary_index"}
)

// empty is an item with a part before its part begins.
func (k *itemKind) empty(id string) string {
	w := jsonwrite.NewWriter(128)
	beginItem(w, k.itemType, id)
	if k == summaryItem {
		w.RawMember("summary", "[]")
	} else {
		w.TextMember("status", statusInProgress)
		w.TextMember("role", "assistant")
		w.RawMember("content", "[]")
	}
	w.EndObject()
	return w.String()
}

// itemHead is what is known of an item when it begins: its kind and its id, and of a call the call's id and its tool.
type itemHead struct {
	*itemKind
	id, callID string
	named      toolname.Name
}

// newCall returns the head of a call's item.
func newCall(callID, function string, names toolname.Names) itemHead {
	h := itemHead{itemKind: functionItem, callID: callID, named: names.Of(function)}
	if h.named.Custom {
		h.itemKind = customItem
	}
	h.id = newID(h.prefix)
	return h
}

// argumentsOf are the arguments of a call, or the text of a custom tool.
func (h *itemHead) argumentsOf(call *toolv1.ToolCall) string {
	if h.named.Custom {
		return toolname.Text(call)
	}
	return dialect.ArgumentsOf(call)
}

// call is a call's item with its arguments, or with the text of a custom tool.
func (h *itemHead) call(status, arguments string) string {
	w := jsonwrite.NewWriter(128 + 2*len(arguments))
	beginItem(w, h.itemType, h.id)
	w.TextMember("status", status)
	w.TextMember("call_id", h.callID)
	w.TextUnlessEmpty("namespace", h.named.Namespace)
	w.TextMember("name", h.named.Name)
	w.TextMember(h.member, arguments)
	w.EndObject()
	return w.String()
}

// writeText writes a text of the assistant with its sources, or its refusal.
func writeText(w *jsonwrite.Writer, text *contentv1.Text, sources []citation.Annotation, logprobs ...*modelv1.Logprob) {
	if text.GetRefusal() {
		w.TextObject("type", partRefusal, "refusal", text.GetText())
		return
	}
	w.BeginObject()
	w.TextMember("type", partText)
	w.TextMember("text", text.GetText())
	w.BeginListMember("annotations")
	for i := range sources {
		sources[i].Write(w)
	}
	w.EndList()
	w.Key("logprobs")
	openai.WriteLogprobs(w, logprobs)
	w.EndObject()
}

// reasoningID is the prefix of the ids of reasoning.
const reasoningID = "rs_"

// nativeID returns the id of reasoning in the vendor's own sealed form; empty for any other.
func nativeID(part *contentv1.Content) string {
	id := part.GetReasoning().GetSignature()
	if part.GetInternalJson() != "" || !part.GetReasoning().GetRedacted() || !strings.HasPrefix(id, reasoningID) {
		return ""
	}
	return id
}
