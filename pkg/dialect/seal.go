package dialect

import (
	"encoding/base64"
	"strings"

	"google.golang.org/protobuf/proto"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// ownSeal begins reasoning that was sealed here.
const ownSeal = "evalfleet:"

// Seal returns a part of reasoning as one text, for formats whose clients send the vendor's own seal back unchanged:
// the part's own provider can then accept it again.
func Seal(part *contentv1.Content) string {
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(part)
	if err != nil {
		return "" // A text is not valid UTF-8; what is readable of it is beside the seal.
	}
	return ownSeal + base64.StdEncoding.EncodeToString(message)
}

// Unseal returns the part that Seal has sealed; nil for any other text.
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
