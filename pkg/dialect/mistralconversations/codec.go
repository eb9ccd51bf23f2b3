// Package mistralconversations is the format of Mistral's Conversations API, in both directions.
//
// Reference: https://docs.mistral.ai/api/endpoint/beta/conversations. A conversation is a list of entries: messages,
// calls and their results, and what tools of the server did. An answer is such a list too. Functions, schemas of
// answers and the chunks of messages are those of Mistral's chat completions ([mistral]).
//
// The format has no reason why an answer ended: one with calls ended with them, and any other is said to have stopped.
// Of sealed reasoning a client gets the summary. Conversations that the server stores, agents, and tools of the server
// that are not offered in the place of a function are not in the canonical form: requests for them are refused.
//
// [mistral]: https://pkg.go.dev/github.com/evalfleet/evalfleet/pkg/dialect/mistral
package mistralconversations

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
)

// Name is the format's name.
const Name = "mistral-conversations"

// Prefixes of ids.
const (
	idPrefix  = "conv_"
	messageID = "msg_"
	callID    = "fc_"
	toolID    = "tool_exec_"
)

// newID makes an id.
func newID(prefix string) string { return prefix + chat.NewID() }

// Codec implements dialect.Codec. The format has no way to count tokens.
type Codec struct {
	dialect.ServerSentEvents
	mistral.Errors
}

var _ dialect.Codec = Codec{}

// Format implements dialect.Codec.
func (Codec) Format() dialect.Format {
	const args = "completion_args."
	return dialect.Format{
		Name: Name, Messages: "inputs", IDPrefix: idPrefix, OutputBounds: []string{args + "max_tokens"},
		Options: map[string]string{
			"frequency_penalty": args + "frequency_penalty", "presence_penalty": args + "presence_penalty", "reasoning_effort": args + "reasoning_effort",
			"response_schema": args + "response_format", "seed": args + "random_seed", "stop_seqs": args + "stop", "temperature": args + "temperature", "top_p": args + "top_p",
		},
	}
}
