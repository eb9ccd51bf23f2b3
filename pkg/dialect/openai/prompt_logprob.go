package openai

import (
	"encoding/json"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// PromptLogprobs reads the log-probabilities of the prompt's tokens in vLLM's form (https://docs.vllm.ai): a list with
// null, or an object of alternatives by token, of which the first is the token itself. It returns nil if there are
// none.
func PromptLogprobs(raw json.RawMessage) *modelv1.Logprobs {
	var documents []json.RawMessage
	if !jsonread.IsSet(raw) || json.Unmarshal(raw, &documents) != nil {
		return nil
	}
	var all []*modelv1.Logprob
	for _, document := range documents {
		alternatives, err := orderedjson.DecodeObject(document)
		if err != nil {
			continue // The first token has none.
		}
		var p *modelv1.Logprob
		for id, value := range alternatives.All() {
			token, logprob, ok := alternative(id, value)
			switch {
			case !ok:
			case p == nil:
				p = &modelv1.Logprob{Token: token, Logprob: logprob}
			default:
				p.TopLogprobs = append(p.TopLogprobs, &modelv1.TopLogprob{Token: token, Logprob: logprob})
			}
		}
		if p != nil {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &modelv1.Logprobs{Content: all}
}

// alternative reads a token: its text, or its id where there is none.
func alternative(id string, value any) (token string, logprob float64, ok bool) {
	object, isObject := value.(*orderedjson.Object)
	if !isObject {
		return "", 0, false
	}
	number, _ := object.Get("logprob")
	n, ok := number.(json.Number)
	if !ok {
		return "", 0, false
	}
	logprob, err := n.Float64()
	token = id
	if text, _ := object.Get("decoded_token"); text != nil {
		if decoded, isText := text.(string); isText {
			token = decoded
		}
	}
	return token, logprob, err == nil
}
