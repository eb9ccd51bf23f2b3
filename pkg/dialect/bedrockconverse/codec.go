// Package bedrockconverse is the format of the Converse and ConverseStream APIs of Amazon Bedrock, in both directions.
//
// Reference: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html. One form serves the
// models of many vendors; what one model alone takes is in `additionalModelRequestFields` ([Fields]). The model's name,
// and whether an answer is streamed, are in the address rather than in the body, and answers have neither an id nor a
// model. A stream is of binary frames, each of which becomes an event (frame.go, docs/adr/0028-bedrock.md).
package bedrockconverse

import "github.com/evalfleet/evalfleet/pkg/dialect"

// Name is the format's name.
const Name = "bedrock-converse"

// Codec implements dialect.Codec.
type Codec struct{}

var _ dialect.Codec = Codec{}

// Format implements dialect.Codec. Answers have no ids.
func (Codec) Format() dialect.Format {
	return dialect.Format{
		Name: Name, Messages: "messages", OutputBounds: []string{"maxTokens"},
		Options: map[string]string{"max_tokens": "maxTokens", "top_p": "topP", "stop_seqs": "stopSequences"},
	}
}
