package endpoint

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/clienttool"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// A vendor's search, its interpreter and the servers that it calls are ways out of a sandbox, which a program in one
// must not grant to itself. Only the operator's token may use them. Other callers get answers without them, in both
// lanes: a request that may offer such a tool does not pass through as bytes.

// mayUseHosted reports whether the caller may use tools that vendors run: only the operator's token may.
func mayUseHosted(ctx context.Context) bool { return auth.FromContext(ctx).Name == auth.Operator }

// fitOffers fits the offers of tools that the client's vendor runs to a model. One that the model's vendor does not run
// is left out of the offer, or refused in a format whose clients offer it only where they need it; a choice that
// demands it is refused.
func (f *format) fitOffers(r *dialect.Request, m *provider.Model, h provider.Hosted) error {
	if h.NoHistory {
		dropUses(r.Messages)
	}
	var left []*toolv1.ToolInfo
	for _, tool := range r.Tools {
		offer, ok := hosted.Of(tool)
		lacks := ok && h.Lacks(offer, r.Tools)
		unmet := h.Unmet(offer)
		switch {
		case lacks && f.demandsHosted:
			return dialect.NotSupported(offer.Member, "%q is a tool that a vendor runs, which %s does not have here; give a function", offer.Type, m.FullName())
		case lacks && r.Choice.GetFunction() == tool.GetName():
			return dialect.NotSupported("tool_choice", "demands %q, a tool that a vendor runs, which %s does not have here", offer.Type, m.FullName())
		case lacks:
			continue
		case unmet != "":
			return dialect.NotSupported(unmet, "restricts a tool in a way that %s does not have; leave it out", m.FullName())
		}
		left = append(left, tool)
	}
	if len(left) == 0 && len(r.Tools) > 0 && r.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY {
		return dialect.NotSupported("tool_choice", "demands a call, but %s has none of the tools on offer", m.FullName())
	}
	r.Tools = left
	return nil
}

// dropUses leaves what vendors' tools did out of a client's messages, which are modified.
func dropUses(messages []*modelv1.ChatMessage) {
	for _, m := range messages {
		if list := m.GetContent().GetList(); list != nil {
			list.Parts = slices.DeleteFunc(list.GetParts(), func(part *contentv1.Content) bool { return part.GetToolUse() != nil })
			if len(list.GetParts()) == 0 {
				m.Content = chat.TextContent("")
			}
		}
	}
}

// withhold leaves the offers of tools that vendors run out of a request, and a choice that demands one. It returns
// their kinds.
func withhold(r *dialect.Request) (kinds []string) {
	r.Tools = slices.DeleteFunc(slices.Clone(r.Tools), func(tool *toolv1.ToolInfo) bool {
		offer, ok := hosted.Of(tool)
		if ok {
			kinds = append(kinds, offer.Kind)
		}
		if ok && r.Choice.GetFunction() == tool.GetName() {
			r.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO)
		}
		return ok
	})
	return kinds
}

// fitHosted is fitOffers, or withhold where the caller may not use such tools. What is withheld is logged once for each
// kind.
func (e *Endpoints) fitHosted(ctx context.Context, x *exchange, r *dialect.Request, m *provider.Model, h provider.Hosted) error {
	if mayUseHosted(ctx) {
		return x.fitOffers(r, m, h)
	}
	withheld := withhold(r)
	if err := x.fitOffers(r, m, h); err != nil {
		return err
	}
	for _, kind := range withheld {
		if _, said := e.withheld.LoadOrStore(kind, true); !said {
			e.deps.Logger.WarnContext(ctx, "a tool that a vendor runs was withheld from a caller without the operator's token; this is said once", "tool", kind, "caller", auth.FromContext(ctx).Name, "request_id", x.id)
		}
	}
	return nil
}

// hosting is how a format's requests, as bytes, ask for tools that its vendor runs.
type hosting struct {
	// known are the members that a request may have without asking for one; nil is all but those of asking.
	known, asking []string
	// plain reports whether a tool is one that only the client runs.
	plain func(tool json.RawMessage) bool
}

// asks reports whether a request may ask for a tool that the vendor runs. What cannot be read may.
func (h *hosting) asks(doc []byte) bool {
	var members map[string]json.RawMessage
	var found [1]jsonscan.Span
	if json.Unmarshal(doc, &members) != nil || jsonscan.Object(doc, []string{"tools"}, found[:]) != nil {
		return true // Readers differ in which of two members counts.
	}
	for name := range members {
		asks := func(member string) bool { return strings.EqualFold(member, name) } // Some servers read names so.
		if slices.ContainsFunc(h.asking, asks) || asks("tools") && name != "tools" || h.known != nil && !slices.Contains(h.known, name) {
			return true
		}
	}
	return !allPlain(found[0].Of(doc), h.plain)
}

// allPlain reports whether the tools of a list are all plain. A member that is missing has none.
func allPlain(list json.RawMessage, plain func(json.RawMessage) bool) bool {
	var tools []json.RawMessage
	if len(list) > 0 && json.Unmarshal(list, &tools) != nil {
		return false
	}
	return !slices.ContainsFunc(tools, func(tool json.RawMessage) bool { return !plain(tool) })
}

// typeOf is the type of an object; ok is false where it has several.
func typeOf(object json.RawMessage) (kind string, ok bool) {
	var found [1]jsonscan.Span
	if jsonscan.Object(object, []string{"type"}, found[:]) != nil {
		return "", false
	}
	if !found[0].Found() {
		return "", true
	}
	return jsonscan.Text(found[0].Of(object))
}

// plainOf are the tools of these types.
func plainOf(types ...string) func(json.RawMessage) bool {
	return func(tool json.RawMessage) bool {
		kind, ok := typeOf(tool)
		return ok && slices.Contains(types, kind)
	}
}

// Servers of chat completions have many members for a search, so that those are listed that have nothing to do with
// one.
var chatHosting = &hosting{
	plain: plainOf("function", "custom"),
	known: []string{
		"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "stream", "stream_options", "n", "temperature", "top_p", "top_k",
		"max_tokens", "max_completion_tokens", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format",
		"reasoning_effort", "verbosity", "modalities", "audio", "prediction", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
		"prompt_cache_retention",
	},
}

var responsesHosting = &hosting{
	plain: func(tool json.RawMessage) bool {
		kind, ok := typeOf(tool)
		if ok && kind == "namespace" {
			return !(&hosting{plain: plainOf("function", "custom")}).asks(tool)
		}
		return ok && slices.Contains([]string{"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview"}, kind)
	},
	// A prompt may have tools of its own. Other servers have further members for a search, as for chat completions.
	known: []string{
		"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "stream", "stream_options", "temperature", "top_p",
		"top_logprobs", "max_output_tokens", "text", "reasoning", "include", "metadata", "client_metadata", "store", "previous_response_id", "conversation",
		"truncation", "context_management", "background", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
	},
}

// itemHosting is how an item asks, of any type: those that add tools, and those that bring what a search for tools
// found.
var itemHosting = &hosting{plain: responsesHosting.plain}

// asksInItems reports whether an item of a request of the Responses API may offer a tool that the vendor runs.
func asksInItems(doc []byte) bool {
	var found [1]jsonscan.Span
	if jsonscan.Object(doc, []string{"input"}, found[:]) != nil {
		return true
	}
	input := found[0].Of(doc)
	if _, isText := jsonscan.Text(input); isText || len(input) == 0 {
		return false
	}
	var items []json.RawMessage
	if json.Unmarshal(input, &items) != nil {
		return true
	}
	return slices.ContainsFunc(items, func(item json.RawMessage) bool { return item[0] == '{' && itemHosting.asks(item) })
}

var messagesHosting = &hosting{
	plain: func(tool json.RawMessage) bool {
		kind, ok := typeOf(tool)
		_, known := clienttool.Anthropic(kind, "", 0, 0)
		return ok && (kind == "" || kind == "custom" || known)
	},
	asking: []string{"mcp_servers", "container"},
}

var geminiHosting = &hosting{
	plain: func(tool json.RawMessage) bool {
		var members map[string]json.RawMessage
		if json.Unmarshal(tool, &members) != nil {
			return false
		}
		for name := range members {
			if !slices.Contains([]string{"functionDeclarations", "function_declarations", "computerUse", "computer_use"}, name) {
				return false
			}
		}
		return true
	},
	asking: []string{"cachedContent", "cached_content"}, // It may have tools of its own.
}
