package openaicompat

import (
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

// groq hosts open models. https://console.groq.com/docs/api-reference#chat
var groq = Service{
	Name: "groq", Description: "Groq", Address: "https://api.groq.com", Path: "/openai/v1/chat/completions",
	MaxTokens: 2048, WholeSchemas: true, PlainTools: true, PlainTurns: true, EmptyCalls: true, ImagesOnly: true, NoExtraBody: true,
	Models: []Models{{
		Efforts: threeEfforts, Ignored: []string{"logit_bias", "logprobs", "top_logprobs", "prompt_logprobs"}, Replay: replayText,
	}},
	Adapt:  adaptGroq,
	Finish: finishGroq,
	Full:   map[int][]string{http.StatusBadRequest: {"context_length_exceeded", "reduce the length"}}, OwnStops: true,
}

// adaptGroq leaves out an empty list of texts that end an answer, which is none.
func adaptGroq(r *dialect.Request) []string {
	if len(r.Config.GetStopSeqs().GetValues()) == 0 {
		r.Config.StopSeqs = nil
	}
	return nil
}

// replayText sends reasoning back as a text, wherever it came from.
func replayText(part *contentv1.Content) (string, []dialect.Member) { return dialect.Think(part), nil }

// finishGroq adds what Groq says of an answer: times, and the calls of its own tools. Reasoning goes back to it as
// text.
func finishGroq(answer dialect.Response, output *modelv1.ModelOutput, name string) error {
	responsesapi.SetModel(output, name)
	if said, ok := answer.(interface{ Metadata() string }); ok {
		output.MetadataJson = said.Metadata()
	}
	for _, choice := range output.GetChoices() {
		for _, part := range choice.GetMessage().GetContent().GetList().GetParts() {
			if part.GetReasoning() != nil {
				part.InternalJson = ""
			}
		}
	}
	return nil
}
