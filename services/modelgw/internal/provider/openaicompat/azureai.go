package openaicompat

import "net/http"

// azureAI is Azure's model inference API. https://learn.microsoft.com/rest/api/aifoundry/modelinference
var azureAI = Service{
	Name: "azureai", Description: "models on Azure AI", KeyEnv: []string{"AZURE_API_KEY", "AZUREAI_API_KEY"},
	AddressEnv: []string{"AZURE_ENDPOINT_URL", "AZUREAI_ENDPOINT_URL", "AZUREAI_BASE_URL"},
	Path:       "/chat/completions?api-version=2024-05-01-preview", KeyHeader: "Api-Key", Identity: true, Sent: bareName,
	MaxTokens: 2048, MergeUser: true, PlainTools: true, PlainTurns: true, OmitEmpty: true, ImagesOnly: true, NoStreamUsage: true,
	NoExtraBody: true, NoReasoning: true,
	Models: []Models{
		{Named: llama, Ignored: ignoredByAzure, Emulate: true},
		{Named: mistral, Ignored: ignoredByAzure, Unbounded: true},
		{Ignored: ignoredByAzure},
	},
	Full: map[int][]string{http.StatusBadRequest: {"maximum context length"}}, OwnStops: true,
}
