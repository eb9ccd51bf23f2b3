package dialect

import contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"

// ContentSize guesses how many bytes content takes on the wire, so that a buffer for it need not grow.
func ContentSize(c *contentv1.MessageContent) int {
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
