package dialect

import (
	"google.golang.org/protobuf/proto"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Size guesses how many bytes a request with messages and tools takes on the wire, so that a buffer for it need not
// grow.
func Size(messages []*modelv1.ChatMessage, tools []*toolv1.ToolInfo) int {
	n := 1024
	for _, m := range messages {
		n += messageSize(m)
	}
	for _, tool := range tools {
		n += 128 + len(tool.GetDescription()) + len(tool.GetParametersJson())
	}
	return n + n/8
}

// OutputSize guesses how many bytes an answer with the choices of an output takes on the wire.
func OutputSize(output *modelv1.ModelOutput) int {
	n := 512
	for _, c := range output.GetChoices() {
		n += messageSize(c.GetMessage())
	}
	return n + n/8
}

// DeltaSize is how many bytes a piece of an answer says.
func DeltaSize(d *modelv1.GenerateDelta) int {
	return len(d.GetText()) + len(d.GetReasoning()) + len(d.GetToolCall().GetArguments()) + proto.Size(d.GetPart())
}

func messageSize(m *modelv1.ChatMessage) int {
	n := 128 + contentSize(m.GetContent())
	for _, call := range m.GetToolCalls() {
		n += 96 + 2*len(call.GetArgumentsJson())
	}
	return n
}

// contentSize guesses how many bytes content takes on the wire, so that a buffer for it need not grow.
func contentSize(c *contentv1.MessageContent) int {
	if c.GetList() == nil {
		return len(c.GetText())
	}
	n := 0
	for _, part := range c.GetList().GetParts() {
		n += 64
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Text:
			n += len(p.Text.GetText())
		case *contentv1.Content_Reasoning:
			n += len(p.Reasoning.GetReasoning())
		case *contentv1.Content_Image:
			n += len(p.Image.GetMedia().GetUri())
		case *contentv1.Content_Audio:
			n += len(p.Audio.GetMedia().GetUri())
		case *contentv1.Content_Document:
			n += len(p.Document.GetMedia().GetUri())
		}
	}
	return n
}
