package evalexport

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
)

// media puts stored bodies into messages, since a log must be complete without the store. It omits a lost body, which
// the message names. After any other failure it leaves messages unchanged, and err is the failure.
type media struct {
	ctx     context.Context //nolint:containedctx // It lives for the making of one sample.
	blobs   eval.Blobs
	project string
	err     error
}

// inline returns the message with its stored bodies as data URIs. A message without bodies is returned unchanged.
func (m *media) inline(message *modelv1.ChatMessage) *modelv1.ChatMessage {
	for i, part := range message.GetContent().GetList().GetParts() {
		blob := chat.Media(part).GetBlob()
		if blob == nil || m.err != nil {
			continue
		}
		uri, err := m.dataURI(blob)
		if rpcerr.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			m.err = fmt.Errorf("medium of message %s: %w", message.GetId(), err)
			return message
		}
		message = proto.CloneOf(message)
		chat.Media(message.GetContent().GetList().GetParts()[i]).Source = &contentv1.Media_Uri{Uri: uri}
	}
	return message
}

// inlineOutput does the same for the messages of an output.
func (m *media) inlineOutput(output *modelv1.ModelOutput) *modelv1.ModelOutput {
	for i, choice := range output.GetChoices() {
		if inlined := m.inline(choice.GetMessage()); inlined != choice.GetMessage() {
			output = proto.CloneOf(output)
			output.Choices[i].Message = inlined
		}
	}
	return output
}

func (m *media) dataURI(ref *contentv1.BlobRef) (string, error) {
	body, err := m.blobs.Open(m.ctx, m.project, ref.GetHash())
	if err != nil {
		return "", err
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		return "", err
	}
	kind := ref.GetMediaType()
	if kind == "" {
		kind = "application/octet-stream"
	}
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(content), nil
}
