package dialect

import (
	"encoding/base64"
	"strings"

	"google.golang.org/protobuf/proto"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// Clients send the sealed form of reasoning back unchanged. Reasoning in another form than the client's vendor's is
// sealed whole, so that its own provider can accept it again.

// ownSeal begins reasoning that was sealed here.
const ownSeal = "evalfleet:"

// Seal returns reasoning as a text that is sealed reasoning to a client.
func Seal(part *contentv1.Content) string {
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(part)
	if err != nil {
		return "" // A text is not valid UTF-8; what is readable of it is beside the seal.
	}
	return ownSeal + base64.StdEncoding.EncodeToString(message)
}

// Unseal returns the reasoning that Seal has sealed; nil for any other text.
func Unseal(sealed string) *contentv1.Content {
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

// Readable is the text of reasoning that a person can read.
func Readable(part *contentv1.Content) string {
	r := part.GetReasoning()
	if r.Summary != nil || r.GetRedacted() {
		return r.GetSummary()
	}
	return r.GetReasoning()
}
