package openaicompat

import (
	"net/http"
	"regexp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/batchapi"
)

// threeEfforts are the words of services that know three efforts. They cannot be asked not to reason: `none` is
// omitted.
var threeEfforts = map[string]string{"none": "", "minimal": "low", "xhigh": "high", "max": "high"}

// fullInput is how servers of several kinds word a full context.
var fullInput = map[int][]string{http.StatusBadRequest: {"input length"}}

// cudaErrors are the words of vLLM for a server that cannot go on.
var cudaErrors = []string{
	"free memory on device", "less than desired gpu memory utilization", "cuda out of memory", "torch.outofmemoryerror",
	"cuda error: an illegal memory access was encountered", "cudaerrorillegaladdress", "torch.acceleratorerror",
}

// services are the known services, by name. Another one is a literal here; docs/model-services.md lists them for
// operators.
var services = []Service{
	azureAI,
	{
		// https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility
		Name: "cloudflare", Description: "Cloudflare Workers AI",
		Address: "https://api.cloudflare.com/client/v4/accounts/" + accountID + "/ai/v1", AccountIDEnv: "CLOUDFLARE_ACCOUNT_ID",
		KeyEnv:    []string{"CLOUDFLARE_API_KEY", "CLOUDFLARE_API_TOKEN"},
		MaxTokens: 2048, // Its own default is 256.
		// https://developers.cloudflare.com/workers-ai/features/prompt-caching
		ConversationHeader: "x-session-affinity",
		FillEmpty:          true,
		Full:               map[int][]string{http.StatusForbidden: {"context window limit"}, http.StatusRequestEntityTooLarge: {"context window limit"}},
		OwnStops:           true,
		Busy:               []int{http.StatusServiceUnavailable},
	},
	{
		// https://api-docs.deepseek.com/guides/thinking_mode
		Name: "deepseek", Description: "DeepSeek", Address: "https://api.deepseek.com",
		Models: []Models{{Efforts: map[string]string{"minimal": "low", "medium": "high", "xhigh": "max"}, LeastEffort: effortNone}},
		Adapt:  adaptDeepSeek,
		Full:   map[int][]string{http.StatusBadRequest: {"maximum context length", "input length"}},
	},
	{
		// https://docs.fireworks.ai/api-reference/post-chatcompletions
		Name: "fireworks", Description: "Fireworks AI", Address: "https://api.fireworks.ai/inference/v1",
		Models: []Models{
			{Named: regexp.MustCompile(`gpt-oss|minimax-m2`), Efforts: threeEfforts, LeastEffort: "low"},
			{Efforts: map[string]string{"minimal": "low"}},
		},
		StreamedOver:       16000,                // The service wants long answers streamed.
		ConversationHeader: "x-session-affinity", // https://docs.fireworks.ai/guides/prompt-caching
		Full:               fullInput,
	},
	groq,
	{
		// https://huggingface.co/docs/inference-providers
		Name: "hf-inference-providers", Description: "Hugging Face Inference Providers", Address: "https://router.huggingface.co/v1",
		KeyEnv: []string{"HF_TOKEN"}, Streamed: true, Full: fullInput,
	},
	liteLLM,
	{
		// https://llama-cpp-python.readthedocs.io/en/latest/server
		Name: "llama-cpp-python", Description: "a server of llama-cpp-python", Address: "http://localhost:8000/v1",
		Keyless: true, DefaultKey: "llama-cpp-python", Full: fullInput,
	},
	{
		// https://dev.meta.ai/docs
		Name: "meta", Description: "Meta's Model API", Address: "https://api.meta.ai/v1", KeyEnv: []string{"META_API_KEY", "MODEL_API_KEY"},
		Responses: true, ResponsesMembers: []dialect.Member{{Name: "prompt_cache_retention", JSON: `"24h"`}},
		ConversationMember: "prompt_cache_key",
		Streamed:           true, // The models reason before anything is seen.
		Models: []Models{
			{
				Named:   regexp.MustCompile(`-contributor|^muse-spark-(0|1(\.[012])?)($|[^.\d])`),
				Efforts: map[string]string{effortNone: "", "max": "xhigh"}, Ignored: ignoredByMeta,
			},
			{Efforts: map[string]string{effortNone: ""}, Ignored: ignoredByMeta},
		},
		LaxTools: true, MaxCompletionTokens: true, Adapt: adaptMeta, RefusalStops: true, Full: fullInput,
	},
	{
		// https://platform.moonshot.ai/docs/api/chat
		Name: "moonshot", Description: "Moonshot AI", Address: "https://api.moonshot.ai/v1",
		Models: []Models{
			{Named: regexp.MustCompile(`^kimi-k3`), Ignored: fixedSampling, Efforts: map[string]string{
				"none": "max", "minimal": "max", "low": "max", "medium": "max", "high": "max", "xhigh": "max",
			}},
			{Named: regexp.MustCompile(`^kimi`), Ignored: fixedSampling},
		},
		Adapt: adaptMoonshot, FillEmpty: true,
		Full: map[int][]string{http.StatusBadRequest: {"exceeded model token limit", "input length"}},
		Busy: []int{http.StatusServiceUnavailable},
	},
	{
		// https://docs.ollama.com/openai
		Name: "ollama", Description: "an Ollama server", Address: "http://localhost:11434/v1",
		Keyless: true, DefaultKey: "ollama", PoolByAddress: true,
		Models: []Models{{Efforts: threeEfforts}}, ReasoningObject: true, Full: fullInput,
	},
	openRouter,
	perplexity,
	{
		// https://docs.sambanova.ai/cloud/api-reference/endpoints/chat
		Name: "sambanova", Description: "SambaNova", Address: "https://api.sambanova.ai/v1",
		Models: []Models{{Efforts: threeEfforts}}, Full: fullInput,
	},
	{
		// https://docs.sglang.ai/basic_usage/openai_api_completions.html
		Name: "sglang", Description: "an SGLang server that runs already", Command: "python -m sglang.launch_server --model-path <model>",
		Keyless: true, DefaultKey: "dummy", PoolByAddress: true, MergeTurns: true, Adapt: continueFinal,
		Full: map[int][]string{http.StatusBadRequest: {"context length"}}, OwnStops: true,
	},
	{
		// https://docs.together.ai/reference/chat-completions-1
		Name: "together", Description: "Together AI", Address: "https://api.together.xyz/v1",
		MaxTokens:    2048, // Its own default is 512.
		WholeSchemas: true, WholeLogprobs: true,
		Models: []Models{
			{Named: regexp.MustCompile(`gpt-oss`), Efforts: threeEfforts, LeastEffort: "low"},
			{Efforts: map[string]string{"none": "", "minimal": "low"}},
		},
		Adapt: adaptTogether, Batches: &batchapi.Together,
		Full: map[int][]string{
			http.StatusBadRequest: fullTogether, http.StatusUnprocessableEntity: fullTogether, http.StatusForbidden: fullTogether,
			http.StatusRequestEntityTooLarge: fullTogether,
		},
		OwnStops: true,
	},
	{
		// https://docs.vllm.ai/en/stable/serving/openai_compatible_server
		Name: "vllm", Description: "a vLLM server that runs already", Command: "vllm serve <model>", Sampling: []string{bestOf, "top_k"},
		Keyless: true, DefaultKey: "inspectai", PoolByAddress: true, MergeTurns: true, Sent: adapterName, ListsWindows: true, Raw: true, Adapt: continueFinal,
		Full:     map[int][]string{http.StatusBadRequest: {"maximum context length", "max_tokens must be at least 1"}},
		OwnStops: true, Broken: cudaErrors,
	},
}

var (
	// fullTogether are Together's words for a full context.
	fullTogether = []string{"max_new_tokens", "context length"}
	// ignoredByMeta are options that Meta's API lacks, in either format.
	ignoredByMeta = []string{"stop_seqs", "logit_bias", "num_choices", "logprobs", "top_logprobs"}
	// ignoredByAzure are options that Azure's API lacks.
	ignoredByAzure = []string{"num_choices", "logit_bias", "logprobs", "top_logprobs", "prompt_logprobs", "parallel_tool_calls", "reasoning_effort", "response_schema"}
	// llama and mistral are models on Azure with defaults of their own.
	llama, mistral = regexp.MustCompile("llama"), regexp.MustCompile("mistral")
	// fixedSampling are options whose values Moonshot fixes for its Kimi models.
	fixedSampling = []string{"temperature", "top_p", "frequency_penalty", "presence_penalty"}
)
