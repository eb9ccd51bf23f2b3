// Package mistralchat is the format of Mistral's chat completions, in both directions.
//
// Reference: https://docs.mistral.ai/api/endpoint/chat. Tools, choices among them, calls and schemas of answers are
// those of OpenAI's chat completions ([openai]); the content of messages consists of Mistral's chunks, in which
// reasoning has a place of its own ([mistral]).
//
// Log-probabilities are left out: requests for them are refused, and answers have none. The format has no place for the
// sources of a text, for what tools of a server did, nor for sealed reasoning, of which a client gets the summary.
//
// [openai]: https://pkg.go.dev/github.com/evalfleet/evalfleet/pkg/dialect/openai
// [mistral]: https://pkg.go.dev/github.com/evalfleet/evalfleet/pkg/dialect/mistral
package mistralchat

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
)

// Name is the format's name.
const Name = "mistral-chat"

// idPrefix is the prefix of the ids of answers.
const idPrefix = "cmpl-"

// newID makes an id of an answer.
func newID() string { return idPrefix + chat.NewID() }

// Codec implements dialect.Codec. The format has no way to count tokens.
type Codec struct {
	dialect.ServerSentEvents
	mistral.Errors
}

var _ dialect.Codec = Codec{}

// Format implements dialect.Codec.
func (Codec) Format() dialect.Format {
	return dialect.Format{
		Name: Name, Messages: "messages", IDPrefix: idPrefix, OutputBounds: []string{"max_tokens"},
		Options: map[string]string{"num_choices": "n", "response_schema": "response_format", "seed": "random_seed", "stop_seqs": "stop"},
	}
}
