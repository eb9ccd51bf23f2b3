// Package gemini is the format of Google's Gemini API in both directions: generateContent, its stream of server-sent
// events, and countTokens.
//
// Reference: https://ai.google.dev/api/generate-content. A model's turn is a list of parts: texts, thoughts, calls and
// media. Any part may have a thought signature, which the server wants back on the same part; in the canonical form it
// is a part of sealed reasoning before the part that it belongs to (seal.go, docs/adr/0025-gemini.md).
//
// The model's name, and whether an answer is streamed, are in the address rather than in the body. The API takes
// members in camelCase and in snake_case. Requests spell them as the vendor's own client library does, which mixes the
// two; answers are in camelCase.
package gemini

import "github.com/evalfleet/evalfleet/pkg/dialect"

// Name is the format's name.
const Name = "gemini"

// Codec implements dialect.Codec and dialect.TokenCounter.
type Codec struct{ dialect.ServerSentEvents }

var (
	_ dialect.Codec        = Codec{}
	_ dialect.TokenCounter = Codec{}
)

// Format implements dialect.Codec. Ids of answers have no prefix.
func (Codec) Format() dialect.Format {
	return dialect.Format{
		Name: Name, Messages: "contents", OutputBounds: []string{
			"generationConfig.maxOutputTokens", "generationConfig.max_output_tokens", "generation_config.maxOutputTokens", "generation_config.max_output_tokens",
		},
		Options: map[string]string{
			"max_tokens": "maxOutputTokens", "top_p": "topP", "top_k": "topK", "stop_seqs": "stopSequences", "num_choices": "candidateCount",
			"frequency_penalty": "frequencyPenalty", "presence_penalty": "presencePenalty", "logprobs": "responseLogprobs", "top_logprobs": "logprobs",
			"reasoning_effort": "thinkingConfig.thinkingLevel", "reasoning_tokens": "thinkingConfig.thinkingBudget", "response_schema": "responseSchema", "modalities": "responseModalities",
		},
	}
}
