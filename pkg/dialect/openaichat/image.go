package openaichat

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// The format has no place for images that a model made. `images`, which OpenRouter and gateways after it send
// (https://openrouter.ai/docs/features/multimodal/image-generation), holds them; clients that do not know it get the text.

// modalityImage is the word by which clients ask for images.
const modalityImage = "image"

// image is an image that a model made.
type image struct {
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// withImages adds images to the content of an answer, but those without an address.
func withImages(c *contentv1.MessageContent, images []image) *contentv1.MessageContent {
	var drawn []*contentv1.Content
	for _, i := range images {
		if i.ImageURL.URL != "" {
			drawn = append(drawn, chat.ImagePart(i.ImageURL.URL))
		}
	}
	if len(drawn) == 0 {
		return c
	}
	return chat.ListContent(append(spoken(c), drawn...)...)
}

// writeImages writes the member, if there are images.
func writeImages(w *jsonwrite.Writer, parts []*contentv1.Content) {
	var urls []string
	for _, part := range parts {
		if url := part.GetImage().GetMedia().GetUri(); url != "" {
			urls = append(urls, url)
		}
	}
	if len(urls) == 0 {
		return
	}
	w.Key("images")
	for _, url := range jsonwrite.Objects(w, urls) {
		w.TextMember("type", "image_url")
		w.TextObjectMember("image_url", "url", url)
	}
}
