package gemini

import (
	"cmp"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// turnReader reads the parts of a model's turn: in an answer, and in a request of a client that sends it back.
type turnReader struct {
	tools []*toolv1.ToolInfo
	parts []*contentv1.Content
	calls []*toolv1.ToolCall
	// newID makes an id for a call or for code, if it has none; nil makes a random one.
	newID func(function string) string
	// code is code that the server ran, until its result comes.
	code *contentv1.Content
	// signed means that a part has a signature of the server's.
	signed bool
}

func (t *turnReader) part(p *part) {
	switch {
	case p.Call != nil:
		t.call(p)
	case p.Inline != nil:
		t.sealed(p)
		t.parts = append(t.parts, dialect.MediaPart(p.Inline.Type, p.Inline.uri()))
	case p.Code != nil:
		t.sealed(p)
		t.executed(p.Code)
	case p.CodeResult != nil:
		t.result(p.CodeResult)
	case p.Text == nil:
	case p.Thought:
		t.parts = append(t.parts, chat.ReasoningPart(*p.Text))
		t.sealed(p)
	default:
		t.sealed(p)
		if *p.Text != "" || p.Signature == "" {
			t.parts = append(t.parts, chat.TextPart(*p.Text))
		}
	}
}

// sealed adds the signature of a part that is not a call. A thought before it becomes its summary.
func (t *turnReader) sealed(p *part) {
	if p.Signature == "" || t.restored(p) {
		return
	}
	t.signed = true
	var summary *string
	if last := len(t.parts) - 1; last >= 0 {
		if r := t.parts[last].GetReasoning(); r != nil && !r.GetRedacted() {
			summary, t.parts = &r.Reasoning, t.parts[:last]
		}
	}
	t.parts = append(t.parts, chat.SealedPart(p.Signature, summary))
}

// restored adds reasoning that was sealed whole and reports whether the signature is that. The thoughts before it are
// what is readable of it.
func (t *turnReader) restored(p *part) bool {
	whole := unwrapped(p.Signature)
	if whole == nil || p.Call != nil && isAnchor(whole) {
		return false
	}
	end, said := len(t.parts), dialect.Readable(whole)
	for ; end > 0; end-- {
		r := t.parts[end-1].GetReasoning()
		if r == nil || r.GetRedacted() || !strings.HasSuffix(said, r.GetReasoning()) {
			break
		}
		said = strings.TrimSuffix(said, r.GetReasoning())
	}
	t.parts = append(t.parts[:end], whole)
	return true
}

// randomID makes an id for a call: some models give their calls none.
func randomID(function string) string { return function + "_" + chat.NewID() }

// call adds a call. One without a name is none.
func (t *turnReader) call(p *part) {
	if p.Call.Name == "" {
		return
	}
	id := p.Call.ID
	switch {
	case id != "":
	case t.newID != nil:
		id = t.newID(p.Call.Name)
	default:
		id = randomID(p.Call.Name)
	}
	if !t.restored(p) {
		signature := p.Signature
		if whole := unwrapped(signature); whole != nil {
			signature = whole.GetReasoning().GetReasoning()
		}
		t.signed = t.signed || signature != ""
		t.parts = append(t.parts, anchor(id, signature))
	}
	t.calls = append(t.calls, dialect.ToolCall(id, p.Call.Name, p.Call.arguments(), t.tools))
}

// noResult is the internal JSON of code whose result has not come.
const noResult = `{"gemini_no_result":true}`

// executed adds code that the server ran.
func (t *turnReader) executed(code *executableCode) {
	id := code.id
	switch {
	case id != "":
	case t.newID != nil:
		id = t.newID("code")
	default:
		id = chat.NewID()
	}
	t.code = &contentv1.Content{InternalJson: noResult, Part: &contentv1.Content_ToolUse{ToolUse: &contentv1.ToolUse{
		ToolType: contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION, Id: id, Name: strings.ToLower(cmp.Or(code.Language, languagePython)), Arguments: code.Code,
	}}}
	t.parts = append(t.parts, t.code)
}

// result adds the result to the last code, or to none.
func (t *turnReader) result(result *executionResult) {
	if t.code == nil {
		t.executed(&executableCode{})
	}
	use := t.code.GetToolUse()
	t.code.InternalJson, t.code = "", nil
	if result.Outcome == outcomeOK {
		use.Result = result.Output
	} else {
		use.Error = &result.Output
	}
}
