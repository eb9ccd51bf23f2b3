package anthropic

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Request is a request with the options that differ between models, which the caller sets. Its messages go through
// Arrange first.
//
// System messages at the beginning are the request's instructions; later ones are turns of their own, which only the
// newest models take. The choice is sent if there are tools.
type Request struct {
	dialect.Request
	// Thinking configures the model's thinking; nil leaves it to the server.
	Thinking *Thinking
	// Cache selects which parts of the prompt the server should cache.
	Cache Cache
	// Native are the forms of tools that the server has itself, which replace tools of the request, by their names:
	// JSON objects, one or more.
	Native map[string][]string
	// Toolset is the name of a tool whose form in Native is a set of tools, its actions; empty for none. Its calls are
	// written as those of its actions.
	Toolset string
	// ModelInAddress and StreamInAddress leave the model's name, and whether the answer is streamed, out of the body:
	// of clouds that have them in the address.
	ModelInAddress, StreamInAddress bool
	// Paused are the blocks of a turn that the server paused, unchanged, for it to continue.
	Paused []json.RawMessage
}

// ThinkingEnabled is thinking within a budget, and ThinkingDisabled is none.
const (
	ThinkingEnabled  = "enabled"
	ThinkingDisabled = "disabled"
)

// Thinking configures the model's thinking before and between its texts.
type Thinking struct {
	// Type is `adaptive`, [ThinkingEnabled], [ThinkingDisabled] or `between_tools`.
	Type string
	// BudgetTokens bounds the tokens for thinking that is enabled.
	BudgetTokens int64
	// Display is how much is shown, such as `summarized`; empty is unset.
	Display string
	// DropUnbound drops thinking that does not belong to the messages before it, instead of failing.
	DropUnbound bool
}

// Cache selects which parts of the prompt the server should cache.
type Cache struct {
	// Off sets no marks, and omits those of the messages.
	Off bool
	// TTL is the lifetime, `5m` or `1h`; empty is unset.
	TTL string
	// Automatic makes the server mark the end of the request by itself.
	Automatic bool
}

// AppendRequest implements dialect.Codec. Later system messages become reminders of the user, which every model takes.
func (Codec) AppendRequest(dst []byte, r *dialect.Request) ([]byte, error) {
	return arranged(r).Append(dst)
}

func arranged(r *dialect.Request) *Request {
	own := &Request{Request: *r}
	own.Messages, _ = Arrange(r.Messages, false)
	return own
}

// Append appends the body of the request to dst. It fails with *dialect.UnsupportedError where content cannot be
// expressed in the format.
func (r *Request) Append(dst []byte) ([]byte, error) {
	return r.write(dst, func(e *encoder) {
		if c := e.Config; c.GetMaxTokens() != 0 {
			e.Member("max_tokens", func() { e.Body.Int(c.GetMaxTokens()) })
		}
		e.options()
		if !r.StreamInAddress {
			e.Member("stream", func() { e.Body.Bool(e.Stream) })
		}
	})
}

// AppendCount appends the body of the question for the number of the request's input tokens.
func (r *Request) AppendCount(dst []byte) ([]byte, error) { return r.write(dst, func(*encoder) {}) }

// write appends a request with these options between the model's name and the conversation.
func (r *Request) write(dst []byte, options func(*encoder)) ([]byte, error) {
	e := &encoder{Request: r, Encoder: dialect.NewEncoder(dst, &r.Request, "the Messages API"), cites: cites(r.Messages), asks: true}
	p := e.plan()
	e.Body.BeginObject()
	if !r.ModelInAddress {
		e.Member("model", func() { e.Body.Text(r.Model) })
	}
	options(e)
	if p.automatic {
		e.Member("cache_control", func() { e.Body.Raw(e.cacheControl()) })
	}
	e.thinking()
	e.Overrides.Write(e.Body)
	if len(r.Tools) > 0 {
		e.tools(p.toolsMarked)
	}
	if len(p.system) > 0 {
		e.Member("system", func() { e.blocks(p.system) })
	}
	e.Member("messages", func() { e.turns(p.turns) })
	e.Body.EndObject()
	return e.Written()
}

// encoder writes one request.
type encoder struct {
	*Request
	dialect.Encoder
	// cites means that a document is to be cited. The server then requires it of all documents.
	cites bool
	// asks means that a request is written, and not an answer.
	asks bool
}

// callID is the id of a call, in a request as the server takes it.
func (e *encoder) callID(id string) string {
	if e.asks {
		return dialect.PlainCallID(id, len(id))
	}
	return id
}

// mark writes the member that marks an object for the cache.
func (e *encoder) mark(marked bool) {
	if marked {
		e.Body.RawMember("cache_control", e.cacheControl())
	}
}

func (e *encoder) cacheControl() string {
	if e.Cache.TTL == "" {
		return `{"type":"ephemeral"}`
	}
	return `{"type":"ephemeral","ttl":` + string(jsonwrite.AppendText(nil, e.Cache.TTL)) + "}"
}

func (e *encoder) thinking() {
	t := e.Thinking
	if t == nil {
		return
	}
	e.Object("thinking", func() {
		e.Body.TextMember("type", t.Type)
		if t.Type == ThinkingEnabled {
			e.Body.IntMember("budget_tokens", t.BudgetTokens)
		}
		e.Body.TextUnlessEmpty("display", t.Display)
		if t.DropUnbound {
			e.Body.RawMember("block_binding", `{"prefix_mismatch_behavior":"drop_block"}`)
		}
	})
}

// options writes the options of the configuration that are set.
func (e *encoder) options() {
	c := e.Config
	e.OptFloat("temperature", c.Temperature)
	e.OptFloat("top_p", c.TopP)
	dialect.OptInt(&e.MemberWriter, "top_k", c.TopK)
	e.OptTexts("stop_sequences", c.GetStopSeqs())
	if c.Effort != nil {
		e.Object("output_config", func() { e.Body.TextMember("effort", c.GetEffort()) })
	}
	if c.ResponseSchema != nil {
		e.Object("output_format", func() {
			e.Body.TextMember("type", "json_schema")
			e.Body.RawMember("schema", closed(c.GetResponseSchema().GetJsonSchema()))
		})
	}
	if c.FallbackModels != nil {
		e.Member("fallbacks", func() {
			for _, model := range jsonwrite.Objects(e.Body, c.GetFallbackModels().GetValues()) {
				e.Body.TextMember("model", model)
			}
		})
	}
}

// tools writes the tools and the choice among them.
func (e *encoder) tools(marked bool) {
	e.Member("tools", func() {
		for i, tool := range jsonwrite.List(e.Body, e.Tools) {
			last := marked && i == len(e.Tools)-1
			if own := e.Native[tool.GetName()]; own != nil {
				for j, form := range own {
					e.rawBlock(form, last && j == len(own)-1)
				}
				continue
			}
			e.Body.BeginObject()
			e.Body.TextMember("name", tool.GetName())
			e.Body.TextUnlessEmpty("description", tool.GetDescription())
			e.Body.RawMember("input_schema", cmp.Or(tool.GetParametersJson(), `{"type":"object"}`))
			e.mark(last)
			e.Body.EndObject()
		}
	})
	if e.Choice != nil {
		e.Member("tool_choice", e.choice)
	}
}

func (e *encoder) choice() {
	choice := ChoiceObject(e.Choice)
	// A choice of none has no such member.
	if e.Config.ParallelToolCalls != nil && e.Choice.GetMode() != toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE {
		choice.Set("disable_parallel_tool_use", !e.Config.GetParallelToolCalls())
	}
	e.Body.Raw(string(orderedjson.Append(nil, choice)))
}

// choices are the words for choices; choiceTool is that for a tool's name.
var choices = dialect.ChoiceWords{Auto: "auto", Any: "any", None: "none"}

const choiceTool = "tool"

// ChoiceObject returns a tool choice in the format.
func ChoiceObject(choice *toolv1.ToolChoice) *orderedjson.Object {
	if name := choice.GetFunction(); name != "" {
		return new(orderedjson.Object).With("type", choiceTool).With("name", name)
	}
	return new(orderedjson.Object).With("type", choices.Word(choice))
}

// closed returns a schema that allows only named members, at all levels, as the format requires of an answer's schema,
// and without the bounds of numbers and texts, which the server refuses:
// https://platform.claude.com/docs/en/build-with-claude/structured-outputs. A value that is no object is returned
// unchanged.
func closed(schema string) string {
	return dialect.EditSchema(schema, func(object *orderedjson.Object) bool {
		dialect.DropBounds(object)
		if !refers(object) {
			object.Set("additionalProperties", false)
		}
		return true
	})
}

// refers reports whether a schema leaves its members to others: closed itself, it would allow no object.
func refers(schema *orderedjson.Object) bool {
	_, members := schema.Get("properties")
	return !members && slices.ContainsFunc([]string{"$ref", "anyOf", "allOf", "oneOf"}, func(keyword string) bool {
		_, there := schema.Get(keyword)
		return there
	})
}
