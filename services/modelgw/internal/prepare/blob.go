package prepare

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// ReadBlob reads a stored body by its SHA-256 in hexadecimal digits. It fails with [blob.ErrNotFound] and
// [blob.ErrInvalid].
type ReadBlob func(ctx context.Context, hash string) ([]byte, error)

// Load returns a conversation with stored media put into its messages as data URIs. A conversation without such media
// is returned unchanged.
func Load(ctx context.Context, c Conversation, read ReadBlob) (Conversation, error) {
	if c.Summary != nil && !c.Summary.media {
		return c, nil
	}
	messages, loaded := c.Messages, c.Messages
	for i, m := range messages {
		if !slices.ContainsFunc(m.GetContent().GetList().GetParts(), stored) {
			continue
		}
		whole := proto.CloneOf(m)
		for _, part := range whole.GetContent().GetList().GetParts() {
			if !stored(part) {
				continue
			}
			media := chat.Media(part)
			stored := media.GetBlob()
			body, err := read(ctx, stored.GetHash())
			if errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrInvalid) {
				return c, rpcerr.InvalidField("messages", "media of message %d cannot be read from the blob store: %v", i, err)
			}
			if err != nil { // Other errors are not faults of the request. The store may be temporarily unavailable.
				return c, rpcerr.Wrap(err, "media of message %d", i)
			}
			mediaType := stored.GetMediaType()
			if mediaType == "" {
				mediaType = "application/octet-stream"
			}
			media.Source = &contentv1.Media_Uri{Uri: "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(body)}
		}
		if &loaded[0] == &messages[0] {
			loaded = slices.Clone(messages)
		}
		loaded[i] = whole
		c.Summary, c.Count = nil, nil
	}
	c.Messages = loaded
	return c, nil
}

func stored(part *contentv1.Content) bool { return chat.Media(part).GetBlob() != nil }
