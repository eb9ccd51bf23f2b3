// Package anthropic is the format of Anthropic's Messages API, in both directions.
//
// Reference: https://platform.claude.com/docs/en/api/messages. Requests are written in one order of members, the
// conversation last, and schemas and inputs of tools go through byte for byte, so that equal prefixes of conversations
// are equal prefixes of bytes. The caller sets what differs between models in [Request].
package anthropic

import "github.com/evalfleet/evalfleet/pkg/dialect"

// Name is the format's name.
const Name = "anthropic"

// idPrefix is the prefix of the ids of answers.
const idPrefix = "msg_"

// Codec implements dialect.Codec and dialect.TokenCounter.
type Codec struct{ dialect.ServerSentEvents }

var (
	_ dialect.Codec        = Codec{}
	_ dialect.TokenCounter = Codec{}
)

// Format implements dialect.Codec.
func (Codec) Format() dialect.Format {
	return dialect.Format{
		Name: Name, Messages: "messages", IDPrefix: idPrefix, OutputBounds: []string{"max_tokens"},
		Options: map[string]string{
			"effort": "output_config.effort", "parallel_tool_calls": "tool_choice.disable_parallel_tool_use", "reasoning_tokens": "thinking.budget_tokens",
			"response_schema": "output_config.format", "stop_seqs": "stop_sequences",
		},
	}
}
