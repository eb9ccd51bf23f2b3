// Package openairesponses is the format of OpenAI's Responses API, in both directions.
//
// Reference: https://platform.openai.com/docs/api-reference/responses. A conversation is a list of items: messages,
// reasoning, calls and their outputs. An answer is such a list too, so that a client sends its items back as they are.
// Errors, and marks for the prompt cache, are those of all formats of the vendor ([openai]).
//
// Conversations that the server stores, and answers in the background, are not in the canonical form: requests for them
// are refused. Tools that the servers of several vendors run are read and written by pkg/dialect/hosted. Of the
// vendor's other tools a client's offers are left out; only the images of the one that draws are read.
//
// [openai]: https://pkg.go.dev/github.com/evalfleet/evalfleet/pkg/dialect/openai
package openairesponses

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
)

// Name is the format's name.
const Name = "openai-responses"

// idPrefix is the prefix of the ids of answers.
const idPrefix = "resp_"

// Codec implements dialect.Codec.
type Codec struct {
	dialect.ServerSentEvents
	openai.Errors
}

var _ dialect.Codec = Codec{}

// Format implements dialect.Codec.
func (Codec) Format() dialect.Format {
	return dialect.Format{
		Name: Name, Messages: "input", IDPrefix: idPrefix, OutputBounds: []string{"max_output_tokens"},
		Options: map[string]string{
			"logprobs": "include", "reasoning_effort": "reasoning.effort", "reasoning_mode": "reasoning.mode", "reasoning_summary": "reasoning.summary",
			"response_schema": "text.format", "verbosity": "text.verbosity",
		},
	}
}
