package dialect

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// DecodeCount decodes the answer to a question for a number of tokens, which is a member of an object, for the
// TokenCounter of a format. Its errors are those of TokenCounter.
func DecodeCount(c Codec, body []byte, member string, malformed func(cause error) error) (tokens int64, err error) {
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, malformed(err)
	}
	switch count := answer[member]; {
	case jsonread.IsSet(answer["error"]):
		return 0, c.DecodeError(body)
	case !jsonread.IsSet(count):
		return 0, malformed(nil)
	default:
		var number Tokens
		if err := json.Unmarshal(count, &number); err != nil {
			return 0, malformed(err)
		}
		return int64(number), nil
	}
}

// AppendCount appends such an answer to dst.
func AppendCount(dst []byte, member string, tokens int64) []byte {
	w := jsonwrite.Append(dst, 32)
	w.BeginObject()
	w.IntMember(member, tokens)
	w.EndObject()
	return w.Bytes()
}
