package anthropic

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// takes defines which kinds of parts a place in a request accepts, beside texts and images.
type takes struct {
	where     string
	documents bool
	model     bool // parts of a model alone: reasoning, tools of the server, data
}

var (
	userTakes      = takes{where: "a user message", documents: true}
	assistantTakes = takes{where: "an assistant message", documents: true, model: true}
	resultTakes    = takes{where: "a tool's result", documents: true}
)

// imageTypes are the media types of images that the server reads.
var imageTypes = map[string]bool{"image/jpeg": true, "image/jpg": true, "image/png": true, "image/gif": true, "image/webp": true}

// check fails if content has no form in its place.
func check(c *contentv1.MessageContent, t takes) error {
	for _, part := range c.GetList().GetParts() {
		what := ""
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Text:
		case *contentv1.Content_Image:
			mediaType, _, inline := dialect.SplitDataURI(p.Image.GetMedia().GetUri())
			if inline && !imageTypes[strings.ToLower(mediaType)] {
				what = "an image of type " + mediaType
			}
		case *contentv1.Content_Document:
			if !t.documents {
				what = "a document"
			}
		case *contentv1.Content_Reasoning, *contentv1.Content_ToolUse:
			if !t.model {
				what = "reasoning or a provider's tool"
			}
		case *contentv1.Content_Data:
			if !t.model || dataBlock(part) == "" {
				what = "data of another provider"
			}
		case *contentv1.Content_Audio:
			what = "audio"
		case *contentv1.Content_Video:
			what = "video"
		default:
			what = "content of an unknown kind"
		}
		if what != "" {
			return unsupported("messages", what+" in "+t.where)
		}
	}
	return nil
}
