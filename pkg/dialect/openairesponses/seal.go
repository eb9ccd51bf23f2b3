package openairesponses

import (
	"encoding/base64"
	"strings"

	"google.golang.org/protobuf/proto"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// Clients send the sealed form of reasoning back unchanged. Reasoning in another form than the vendor's is sealed whole,
// so that its own provider can accept it again.

const (
	// ownSeal begins reasoning that was sealed here.
	ownSeal = "evalfleet:"
	// reasoningID is the prefix of the ids of reasoning.
	reasoningID = "rs_"
)

// nativeID returns the id of reasoning in the vendor's own sealed form; empty for any other.
func nativeID(part *contentv1.Content) string {
	id := part.GetReasoning().GetSignature()
	if part.GetInternalJson() != "" || !part.GetReasoning().GetRedacted() || !strings.HasPrefix(id, reasoningID) {
		return ""
	}
	return id
}

// seal returns a part as sealed reasoning.
func seal(part *contentv1.Content) string {
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(part)
	if err != nil {
		return "" // A text is not valid UTF-8; what is readable of it is beside the seal.
	}
	return ownSeal + base64.StdEncoding.EncodeToString(message)
}

// unseal returns the part that seal has sealed; nil for any other text.
func unseal(sealed string) *contentv1.Content {
	encoded, own := strings.CutPrefix(sealed, ownSeal)
	if !own {
		return nil
	}
	message, err := base64.StdEncoding.DecodeString(encoded)
	part := &contentv1.Content{}
	if err != nil || proto.Unmarshal(message, part) != nil || part.GetReasoning() == nil {
		return nil
	}
	return part
}
