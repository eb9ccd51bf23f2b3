package openaicompat

import (
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// azureAI is Azure's model inference API. https://learn.microsoft.com/rest/api/aifoundry/modelinference
var azureAI = Service{
	Name: "azureai", Description: "models on Azure AI", KeyEnv: []string{"AZURE_API_KEY", "AZUREAI_API_KEY"},
	AddressEnv: []string{"AZURE_ENDPOINT_URL", "AZUREAI_ENDPOINT_URL", "AZUREAI_BASE_URL"},
	Path:       "/chat/completions?api-version=2024-05-01-preview", KeyHeader: "Api-Key", Identity: true, Sent: bareName,
	MaxTokens: 2048, MergeUser: true, PlainTools: true, PlainTurns: true, OmitEmpty: true, ImagesOnly: true, NoStreamUsage: true,
	NoExtraBody: true, NoReasoning: true, Adapt: adaptAzure,
	Models: []Models{
		{Named: llama, Ignored: ignoredByAzure, Emulate: true},
		{Named: mistral, Ignored: ignoredByAzure, Unbounded: true},
		{Ignored: ignoredByAzure},
	},
	Full: map[int][]string{http.StatusBadRequest: {"maximum context length"}}, OwnStops: true,
}

// adaptAzure puts a user's text after a tool's result into that result, for models of Mistral, which refuse a message
// of the user there. One with other parts stays where it is.
func adaptAzure(r *dialect.Request) []string {
	if !mistral.MatchString(strings.ToLower(r.Model)) {
		return nil
	}
	var turns []*modelv1.ChatMessage
	for _, m := range r.Messages {
		last := len(turns) - 1
		follows := last >= 0 && turns[last].GetRole() == modelv1.Role_ROLE_TOOL
		if !follows || m.GetRole() != modelv1.Role_ROLE_USER || !isText(m) {
			turns = append(turns, m)
			continue
		}
		result := proto.CloneOf(turns[last])
		result.Content, result.Error = chat.TextContent(chat.ResultText(result)+chat.Text(m)), nil
		turns[last] = result
	}
	r.Messages = turns
	return nil
}

// isText reports whether a message has nothing but text.
func isText(m *modelv1.ChatMessage) bool {
	isOther := func(part *contentv1.Content) bool { return part.GetText() == nil }
	return !slices.ContainsFunc(chat.Parts(m.GetContent()), isOther)
}
