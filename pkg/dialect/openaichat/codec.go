// Package openaichat is the format of OpenAI's chat completions, in both directions. Many servers accept it from
// clients; what differs between servers is in [Request].
//
// Reference: https://platform.openai.com/docs/api-reference/chat. Requests are written in one order of members, model
// and messages first, and schemas and arguments of tools go through byte for byte, so that equal prefixes of
// conversations are equal prefixes of bytes.
package openaichat

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
)

// Name is the format's name.
const Name = "openai-chat"

// idPrefix is the prefix of the ids of answers.
const idPrefix = "chatcmpl-"

// Codec implements dialect.Codec. The format has no way to count tokens.
type Codec struct {
	dialect.ServerSentEvents
	openai.Errors
}

var _ dialect.Codec = Codec{}

// Format implements dialect.Codec.
func (Codec) Format() dialect.Format {
	return dialect.Format{
		Name: Name, Messages: "messages", IDPrefix: idPrefix, OutputBounds: []string{"max_completion_tokens", "max_tokens"},
		Options: map[string]string{"num_choices": "n", "response_schema": "response_format", "stop_seqs": "stop"},
	}
}
