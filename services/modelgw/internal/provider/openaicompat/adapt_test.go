package openaicompat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// sent are the members of the request for a call, and the warnings.
func sent(t *testing.T, service, model string, r *provider.Request) (members map[string]json.RawMessage, warnings []string) {
	t.Helper()
	p := openAt(t, service, model, providertest.ChatServer(t, providertest.Answer{Text: "fine"}), `{"responses_api": false}`)
	r.Record = provider.RecordAll
	if r.Config == nil {
		r.Config = &modelv1.GenerateConfig{}
	}
	if r.Messages == nil {
		r.Messages = []*modelv1.ChatMessage{chat.User("q")}
	}
	response, err := p.Generate(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(response.Call.GetRequestJson()), &members))
	return members, response.Warnings
}

// Groq gets earlier reasoning as a text, also if it came in a member of its own.
func TestReasoningReturnsToGroqAsText(t *testing.T) {
	t.Parallel()
	thought := chat.ReasoningPart("hm")
	thought.InternalJson = `"reasoning_content"`
	said := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_ASSISTANT, Content: chat.ListContent(thought, chat.TextPart("a"))}
	p := openAt(t, "groq", "m", providertest.ChatServer(t, providertest.Answer{Text: "fine"}), "")
	response, err := p.Generate(t.Context(), &provider.Request{
		Messages: []*modelv1.ChatMessage{said}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll,
	})
	require.NoError(t, err)
	assert.Contains(t, response.Call.GetRequestJson(), `\nhm\n</think>\na`)
	assert.NotContains(t, response.Call.GetRequestJson(), `"reasoning_content":`)
}

// Groq is sent no empty list of texts that end an answer.
func TestNoStopsForGroq(t *testing.T) {
	t.Parallel()
	p := openAt(t, "groq", "m", providertest.ChatServer(t, providertest.Answer{Text: "a"}, providertest.Answer{Text: "a"}), "")
	for _, stops := range [][]string{{}, {"x"}} {
		response, err := p.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{StopSeqs: &modelv1.StringList{Values: stops}}, Record: provider.RecordAll,
		})
		require.NoError(t, err)
		assert.Equal(t, len(stops) > 0, strings.Contains(response.Call.GetRequestJson(), `"stop":`))
	}
}

// A choice that a service refuses while its model thinks is weakened, with a warning.
func TestForcedChoices(t *testing.T) {
	t.Parallel()
	clock := []*toolv1.ToolInfo{{Name: "clock", ParametersJson: `{"type":"object"}`}}
	forced := chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY)
	named := &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Function{Function: "clock"}}
	const whole = `{"type":"function","function":{"name":"clock"}}`
	disabled := &modelv1.GenerateConfig{ExtraBodyJson: new(`{"thinking":{"type":"disabled"}}`)}
	none := &modelv1.GenerateConfig{ReasoningEffort: new("none")}
	for i, test := range []struct {
		service, model string
		choice         *toolv1.ToolChoice
		config         *modelv1.GenerateConfig
		want           string
		warns          bool
	}{
		{"deepseek", "deepseek-chat", forced, nil, `"auto"`, true},
		{"deepseek", "deepseek-chat", named, nil, `"auto"`, true},
		{"deepseek", "deepseek-chat", forced, none, `"required"`, false},
		{"deepseek", "deepseek-chat", named, disabled, whole, false},
		{"deepseek", "deepseek-chat", nil, nil, `"auto"`, false},
		{"moonshot", "kimi-k2.5", forced, nil, `"auto"`, true},
		{"moonshot", "kimi-k2.5", named, nil, `"auto"`, true},
		{"moonshot", "kimi-k2.5", named, disabled, whole, false},
		{"moonshot", "Kimi-K3", forced, nil, `"required"`, false},
		{"moonshot", "kimi-k3", named, nil, `"required"`, true},
		{"moonshot", "moonshot-v1-8k", named, nil, whole, false},
		{"together", "m", named, nil, whole, false},
		{"meta", "muse-spark-1.3", named, nil, `"auto"`, true},
		{"meta", "muse-spark-1.3", nil, nil, `"auto"`, false},
	} {
		members, warnings := sent(t, test.service, test.model, &provider.Request{Tools: clock, ToolChoice: test.choice, Config: test.config})
		assert.JSONEq(t, test.want, string(members["tool_choice"]), i)
		assert.Equal(t, test.warns, len(warnings) > 0, "%d: %v", i, warnings)
	}
}

// A choice that forces a call cannot be put into a prompt, which is said.
func TestForcedChoicesOfEmulatedTools(t *testing.T) {
	t.Parallel()
	clock := []*toolv1.ToolInfo{{Name: "clock", ParametersJson: `{"type":"object"}`}}
	for mode, warns := range map[toolv1.ToolChoiceMode]bool{toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY: true, toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO: false} {
		p := openAt(t, "together", "m", providertest.ChatServer(t, providertest.Answer{Text: "fine"}), `{"emulate_tools": true}`)
		response, err := p.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: clock, ToolChoice: chat.ModeChoice(mode), Config: &modelv1.GenerateConfig{},
		})
		require.NoError(t, err)
		assert.Equal(t, warns, len(response.Warnings) > 0, "%s: %v", mode, response.Warnings)
	}
}

// What a service calls an effort, and where it has it; an effort without a word there is not sent, and is said not to
// be.
func TestEfforts(t *testing.T) {
	t.Parallel()
	for i, test := range []struct{ service, model, effort, member, want string }{
		{"deepseek", "m", "medium", "reasoning_effort", `"high"`},
		{"deepseek", "m", "none", "thinking", `{"type":"disabled"}`},
		{"fireworks", "accounts/a/models/GPT-OSS-20b", "max", "reasoning_effort", `"high"`},
		{"fireworks", "accounts/a/models/glm-5", "none", "reasoning_effort", `"none"`},
		{"fireworks", "accounts/a/models/minimax-m3", "max", "reasoning_effort", `"max"`},
		{"fireworks", "accounts/a/models/minimax-m2p7", "none", "", ""},
		{"meta", "muse-spark-1.3", "max", "reasoning_effort", `"max"`},
		{"meta", "muse-spark-1", "max", "reasoning_effort", `"xhigh"`},
		{"meta", "muse-spark-1.10", "max", "reasoning_effort", `"max"`},
		{"meta", "muse-spark-2-contributor", "max", "reasoning_effort", `"xhigh"`},
		{"meta", "muse-spark-1.2-preview", "none", "", ""},
		{"ollama", "m", "max", "reasoning", `{"effort":"high"}`},
		{"ollama", "m", "none", "", ""},
		{"sambanova", "m", "none", "", ""},
		{"together", "openai/gpt-oss-20b", "xhigh", "reasoning_effort", `"high"`},
		{"together", "m", "xhigh", "reasoning_effort", `"xhigh"`},
		{"together", "m", "none", "", ""},
	} {
		c := &modelv1.GenerateConfig{ReasoningEffort: &test.effort}
		members, _ := sent(t, test.service, test.model, &provider.Request{Config: c})
		unsent := provider.Fit(openAt(t, test.service, test.model, "http://127.0.0.1:1", ""), c).Unsent
		if test.member == "" {
			assert.NotContains(t, members, "reasoning_effort", i)
			assert.NotContains(t, members, "reasoning", i)
			assert.Equal(t, []provider.Unsent{{Option: "reasoning_effort", Why: "which has no effort none"}}, unsent, i)
			continue
		}
		assert.JSONEq(t, test.want, string(members[test.member]), i)
		assert.Empty(t, unsent, i)
	}
}

// Answers are streamed where a service wants it, and where someone watches, except where a stream lacks something.
func TestWhatIsStreamed(t *testing.T) {
	t.Parallel()
	long, logprobs := &modelv1.GenerateConfig{MaxTokens: new(int64(16001))}, &modelv1.GenerateConfig{Logprobs: new(true)}
	prompt := &modelv1.GenerateConfig{PromptLogprobs: new(int32(1))}
	watch := func() {}
	for i, test := range []struct {
		service string
		config  *modelv1.GenerateConfig
		watch   func()
		want    bool
	}{
		{"fireworks", nil, nil, false},
		{"fireworks", long, nil, true},
		{"together", long, nil, false},
		{"together", nil, watch, true},
		{"together", logprobs, watch, false},
		{"hf-inference-providers", nil, nil, true},
		{"litellm-proxy", nil, nil, true},
		{"litellm-proxy", prompt, watch, false},
		{"vllm", nil, watch, true},
		{"vllm", prompt, watch, false},
		{"hf-inference-providers", prompt, watch, false},
	} {
		members, _ := sent(t, test.service, "m", &provider.Request{Config: test.config, Progress: test.watch})
		assert.Equal(t, test.want, members["stream"] != nil, i)
	}
}

// Mistral's models on Azure take no message of the user after a tool's result, whose text is put into that. Messages
// with other parts stay where they are, and so does everything for other models.
func TestTheUserAfterAToolOnAzure(t *testing.T) {
	t.Parallel()
	failed := &modelv1.ChatMessage{
		Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{"c"}, Error: &toolv1.ToolCallError{Message: "late"},
	}
	picture := chat.ImagePart("data:image/png;base64,aGk=")
	look := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(picture)}
	for name, test := range map[string]struct {
		model string
		after *modelv1.ChatMessage
		want  string
	}{
		"Mistral's": {"Mistral-large", chat.User(" Go on."), `["Error: late Go on."]`},
		"a picture": {
			"mistral-large", look,
			`["Error: late",[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"auto"}}]]`,
		},
		"another one": {"phi-4", chat.User(" Go on."), `["Error: late"," Go on."]`},
	} {
		r := &provider.Request{Messages: []*modelv1.ChatMessage{failed, test.after}}
		members, _ := sent(t, "azureai", test.model, r)
		var messages []struct{ Content json.RawMessage }
		require.NoError(t, json.Unmarshal(members["messages"], &messages))
		var contents []json.RawMessage
		for _, m := range messages {
			contents = append(contents, m.Content)
		}
		got, err := json.Marshal(contents)
		require.NoError(t, err)
		assert.JSONEq(t, test.want, string(got), name)
	}
	assert.Equal(t, "late", failed.GetError().GetMessage(), "the caller's message is not changed")
	data := &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: `{"a":1}`}}}
	p := openAt(t, "azureai", "mistral-large", providertest.ChatServer(t, providertest.Answer{Text: "fine"}), "")
	_, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{
		failed, {Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(chat.TextPart("Go on."), data)},
	}, Config: &modelv1.GenerateConfig{}})
	require.ErrorContains(t, err, "content in a user message", "no part is left out in silence")
}

// A last message of the assistant is continued, unless extra_body decides.
func TestTheLastMessageIsContinued(t *testing.T) {
	t.Parallel()
	r := func(c *modelv1.GenerateConfig) *provider.Request {
		return &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("Name a city."), chat.Assistant("Ber")}, Config: c}
	}
	for _, service := range []string{"vllm", "sglang"} {
		members, _ := sent(t, service, "m", r(nil))
		assert.Equal(t, "false true", fmt.Sprint(string(members["add_generation_prompt"]), " ", string(members["continue_final_message"])))
		members, _ = sent(t, service, "m", r(&modelv1.GenerateConfig{ExtraBodyJson: new(`{"add_generation_prompt":true}`)}))
		assert.NotContains(t, members, "continue_final_message")
	}
	members, _ := sent(t, "ollama", "m", r(nil))
	assert.NotContains(t, members, "continue_final_message")
}

func TestDeepSeekTakesNoSchema(t *testing.T) {
	t.Parallel()
	members, warnings := sent(t, "deepseek", "m", &provider.Request{Config: &modelv1.GenerateConfig{ResponseSchema: &modelv1.ResponseSchema{Name: "s", JsonSchema: `{"type":"object"}`}}})
	assert.JSONEq(t, `{"type":"json_object"}`, string(members["response_format"]))
	assert.Len(t, warnings, 1)
}

func TestTogetherWantsATemperatureForSeveralChoices(t *testing.T) {
	t.Parallel()
	members, _ := sent(t, "together", "m", &provider.Request{Config: &modelv1.GenerateConfig{NumChoices: new(int32(2))}})
	assert.Equal(t, "1", string(members["temperature"]))
}

// An adapter of a model is asked for by its own name, and a server tells the window of the model below it, once.
func TestAnAdapterAndTheWindowOfAServer(t *testing.T) {
	t.Parallel()
	var listings, refused atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			listings.Add(1)
			assert.Equal(t, "/v1/models", r.URL.Path)
			assert.Equal(t, "Bearer k", r.Header.Get("Authorization"))
			_, _ = fmt.Fprint(w, `{"data":[{"id":"acme/river","max_model_len":4096},{"id":"acme/law","parent":"acme/river"},{"id":"other","max_model_len":9}]}`)
			return
		}
		var asked struct{ Model string }
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&asked))
		assert.Equal(t, "acme/law", asked.Model)
		if refused.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprint(w, `{"error":{"message":"CUDA out of memory. Tried to allocate 2 GiB"}}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(server.Close)
	p := openAt(t, "vllm", "acme/river:acme/law", server.URL+"/v1", "")
	windowed := p.(provider.Windowed)
	_, told := windowed.ContextTokens()
	assert.False(t, told)
	_, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
	assert.Equal(t, provider.Final, provider.ClassOfError(err), "a server without memory cannot go on: %v", err)
	_, err = p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
	require.NoError(t, err)
	tokens, told := windowed.ContextTokens()
	assert.True(t, told)
	assert.Equal(t, int64(4096), tokens)
	assert.Equal(t, int32(1), listings.Load())
}

// Calls do not wait for one another's question for the window, and one that is cancelled is no try.
func TestCallsDoNotWaitForTheWindow(t *testing.T) {
	t.Parallel()
	var listings atomic.Int32
	asked, answer := make(chan struct{}, 9), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			_, _ = fmt.Fprint(w, `{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}]}`)
			return
		}
		listings.Add(1)
		asked <- struct{}{}
		select {
		case <-answer:
			_, _ = fmt.Fprint(w, `{"data":[{"id":"m","max_model_len":4096}]}`)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	p := openAt(t, "vllm", "m", server.URL+"/v1", "")
	call := func(ctx context.Context) error {
		_, err := p.Generate(ctx, &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
		return err
	}
	for i := range int32(3) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- call(ctx) }()
		<-asked
		require.NoError(t, call(t.Context()))
		assert.Equal(t, i+1, listings.Load(), "the second call did not ask, and did not wait")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	close(answer)
	require.NoError(t, call(t.Context()))
	tokens, _ := p.(provider.Windowed).ContextTokens()
	assert.Equal(t, int64(4096), tokens)
}

// A service of the Responses API is asked by it, unless a model argument says otherwise; any other, if one says so.
func TestTheFormatOfAService(t *testing.T) {
	t.Parallel()
	for i, test := range []struct{ service, args, want string }{
		{"meta", "", "/responses"},
		{"meta", `{"responses_api": false}`, "/chat/completions"},
		{"deepseek", "", "/chat/completions"},
		{"deepseek", `{"responses_api": true}`, "/responses"},
	} {
		p := openAt(t, test.service, "m", "http://127.0.0.1:1/v1", test.args)
		assert.Equal(t, "http://127.0.0.1:1/v1"+test.want, p.Capabilities().Upstreams[0].URL, i)
	}
	kind := kindOf(t, "deepseek", nil)
	_, err := kind.Open(provider.Spec{Model: "m", Account: provider.DefaultAccount, Args: `{"responses_api": true, "emulate_tools": true}`})
	require.ErrorContains(t, err, "emulate_tools")
}

// A service of the Responses API is offered the tool that draws, unless it has its own tools alone; pictures of tools
// are messages of the user for each, as with chat completions.
func TestPicturesWithTheResponsesAPI(t *testing.T) {
	t.Parallel()
	c := &modelv1.GenerateConfig{Modalities: &modelv1.ModalityList{
		Values: []*modelv1.Modality{{Type: "image", OptionsJson: `{"openai":{"quality":"low"}}`}},
	}}
	for service, want := range map[string]string{
		"meta": `[{"type":"image_generation","quality":"low"}]`, "perplexity": "",
	} {
		p := openAt(t, service, "m", providertest.ResponsesServer(t, providertest.Answer{Text: "fine"}), "")
		assert.False(t, p.Capabilities().Features.GetToolResultImages(), service)
		r := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: c, Record: provider.RecordAll}
		response, err := p.Generate(t.Context(), r)
		require.NoError(t, err, service)
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(response.Call.GetRequestJson()), &members))
		assert.Equal(t, want, string(members["tools"]), service)
	}
}

// The Responses API gives pictures beside text, and other outputs are refused. Services that draw none say that the
// option is not sent.
func TestOtherOutputsAreRefused(t *testing.T) {
	t.Parallel()
	c := &modelv1.GenerateConfig{Modalities: &modelv1.ModalityList{
		Values: []*modelv1.Modality{{Type: "image"}, {Type: "audio"}},
	}}
	p := openAt(t, "meta", "m", providertest.ResponsesServer(t), "")
	_, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: c})
	for _, err := range []error{p.Check(c), err} {
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%v", err)
		assert.ErrorContains(t, err, `"audio"`)
	}
	for _, service := range []string{"perplexity", "groq"} {
		p := openAt(t, service, "m", "http://127.0.0.1:1", "")
		require.NoError(t, p.Check(c), service)
		unsent := provider.Fit(p, c).Unsent
		assert.Equal(t, []provider.Unsent{{Option: "modalities", Why: "which does not take it"}}, unsent, service)
	}
}

// Arguments that the format of a model does not take are said not to be sent.
func TestArgumentsOfAnotherFormat(t *testing.T) {
	t.Parallel()
	for i, test := range []struct {
		service, args string
		want          []string
	}{
		{"openrouter", `{"responses_api": true, "reasoning_enabled": true, "strict_tools": false}`, []string{"reasoning_enabled", "strict_tools"}},
		{"openrouter", `{"reasoning_enabled": true, "strict_tools": false, "responses_store": false}`, nil},
		{"openrouter", `{"responses_store": true, "responses_phase": true}`, []string{"responses_phase", "responses_store"}},
		{
			"vllm-completions", `{"responses_api": true, "responses_store": true, "responses_phase": true, "stream": true, "strict_tools": true}`,
			[]string{"responses_api", "responses_phase", "responses_store", "stream", "strict_tools"},
		},
		{"vllm-completions", `{"emulate_tools": true}`, []string{"emulate_tools"}},
		{"vllm-completions", `{"responses_api": false, "stream": false}`, nil},
	} {
		account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: "http://127.0.0.1:1"}}
		p, err := kindOf(t, test.service, openaicompat.Services{strings.TrimSuffix(test.service, "-completions"): {Account: account}}).
			Open(provider.Spec{Model: "m", Account: provider.DefaultAccount, Args: test.args})
		require.NoError(t, err)
		unsent := provider.Fit(p, &modelv1.GenerateConfig{}).Unsent
		var names []string
		for _, u := range unsent {
			names = append(names, strings.TrimPrefix(u.Option, provider.ModelArgument))
		}
		assert.Equal(t, test.want, names, i)
	}
	for _, service := range []string{"groq", "azureai"} { // whose chat completions are at a place of their own
		account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: "http://127.0.0.1:1"}}
		_, err := kindOf(t, service, openaicompat.Services{service: {Account: account}}).
			Open(provider.Spec{Model: "m", Account: provider.DefaultAccount, Args: `{"responses_api": true}`})
		require.ErrorContains(t, err, service+" has chat completions alone", service)
	}
}

// In Meta's answers a refusal of the model is filtered content.
func TestARefusalOfMeta(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}]}`)
	}))
	t.Cleanup(server.Close)
	for service, want := range map[string]modelv1.StopReason{"meta": modelv1.StopReason_STOP_REASON_CONTENT_FILTER, "deepseek": modelv1.StopReason_STOP_REASON_STOP} {
		response, err := openAt(t, service, "m", server.URL, `{"responses_api": true}`).Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}})
		require.NoError(t, err)
		assert.Equal(t, want, chat.StopReason(response.Output), service)
	}
}

// Tools that are emulated are in a prompt, and calls in an answer's text are calls.
func TestEmulatedTools(t *testing.T) {
	t.Parallel()
	url := providertest.ChatServer(t, providertest.Answer{Text: `Look. <tool_call>{"name":"clock","arguments":{}}</tool_call>`})
	r := &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll,
		Tools: []*toolv1.ToolInfo{{Name: "clock", Description: "Tells the time.", ParametersJson: `{"type":"object"}`}},
	}
	response, err := openAt(t, "ollama", "m", url, `{"emulate_tools": true}`).Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, "Look.", chat.Completion(response.Output))
	require.Len(t, chat.FirstMessage(response.Output).GetToolCalls(), 1)
	assert.Equal(t, "clock", chat.FirstMessage(response.Output).GetToolCalls()[0].GetFunction())
	assert.Contains(t, response.Call.GetRequestJson(), "Tells the time.")
	assert.NotContains(t, response.Call.GetRequestJson(), `"tools"`)
}

// A server may know calls although its model's tools are in a prompt: bare arguments are then the tool's first ones.
func TestACallOfAnEmulatedToolInTheAPIsOwnForm(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{`"Paris"`: `{"city":"Paris"}`, `"[1, 2]"`: `{"city":[1,2]}`, `"{\"city\":\"Rome\"}"`: `{"city":"Rome"}`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"weather","arguments":`+arguments+`}}]}}]}`)
		}))
		t.Cleanup(server.Close)
		response, err := openAt(t, "ollama", "m", server.URL, `{"emulate_tools": true}`).Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll,
			Tools: []*toolv1.ToolInfo{{Name: "weather", ParametersJson: `{"type":"object","properties":{"city":{}}}`}},
		})
		require.NoError(t, err)
		call := chat.FirstMessage(response.Output).GetToolCalls()[0]
		assert.Empty(t, call.GetParseError(), arguments)
		assert.JSONEq(t, want, call.GetArgumentsJson())
		assert.NotContains(t, response.Call.GetRequestJson(), `"tools"`)
	}
}

// Models of Llama on Azure have their tools in a prompt, unless an argument says otherwise; no request of a client then
// passes unchanged.
func TestWhoseToolsAreEmulated(t *testing.T) {
	t.Parallel()
	for args, emulates := range map[string]bool{"": true, `{"emulate_tools": false}`: false} {
		p := openAt(t, "azureai", "Llama-3.3-70B-Instruct", "http://127.0.0.1:1", args)
		assert.Equal(t, emulates, p.Capabilities().Upstreams == nil, args)
	}
	assert.NotNil(t, openAt(t, "azureai", "phi-4", "http://127.0.0.1:1", "").Capabilities().Upstreams)
	assert.Nil(t, openAt(t, "azureai", "phi-4", "http://127.0.0.1:1", `{"emulate_tools": true}`).Capabilities().Upstreams)
}

// vLLM takes options that chat completions lack; a server that refuses one is asked without, once and from then on, and
// the answer says so.
func TestOptionsOfSamplingOfAServer(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]string{"taken": "", "refused": `{"error":{"message":"Extra inputs are not permitted: best_of"}}`, "refused for another reason": `{"error":{"message":"no such model"}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan map[string]json.RawMessage, 9)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodGet {
					_, _ = fmt.Fprint(w, `{"data":[]}`)
					return
				}
				var body map[string]json.RawMessage
				assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
				asked <- body
				if body["best_of"] != nil && refusal != "" {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = fmt.Fprint(w, refusal)
					return
				}
				_, _ = fmt.Fprint(w, `{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}]}`)
			}))
			t.Cleanup(server.Close)
			p := openAt(t, "vllm", "m", server.URL+"/v1", "")
			c := &modelv1.GenerateConfig{BestOf: new(int32(3)), TopK: new(int32(5))}
			fitted := provider.Fit(p, c)
			assert.Empty(t, fitted.Unsent)
			ask := func() (*provider.Response, error) {
				return p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: fitted.Sent})
			}
			first, err := ask()
			body := <-asked
			assert.Equal(t, []string{"3", "5"}, []string{string(body["best_of"]), string(body["top_k"])})
			switch name {
			case "taken":
				require.NoError(t, err)
				assert.Empty(t, first.Warnings)
				assert.Empty(t, asked)
			case "refused":
				require.NoError(t, err)
				second, err := ask()
				require.NoError(t, err)
				assert.Len(t, asked, 2)
				for _, response := range []*provider.Response{first, second} {
					assert.Contains(t, response.Warnings, "best_of and top_k had no effect: the server refuses such an option, and was asked without")
				}
			default:
				require.ErrorContains(t, err, "no such model")
				assert.Empty(t, asked)
			}
		})
	}
}

// The schema of the answer has the keywords that those of tools have.
func TestBoundsInTheSchemaOfTheAnswer(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"a":{"type":"string","minLength":2,"format":"date"},"b":{"type":"array","items":{"type":"integer","minimum":0}}}}`
	given := &modelv1.GenerateConfig{ResponseSchema: &modelv1.ResponseSchema{Name: "x", JsonSchema: schema}}
	for service, want := range map[string]string{
		"moonshot": `{"type":"object","properties":{"a":{"type":"string","format":"date"},"b":{"type":"array","items":{"type":"integer"}}}}`,
		"together": schema,
	} {
		members, _ := sent(t, service, "m", &provider.Request{Config: given})
		var format struct {
			JSONSchema struct {
				Schema json.RawMessage
			} `json:"json_schema"`
		}
		require.NoError(t, json.Unmarshal(members["response_format"], &format), service)
		assert.JSONEq(t, want, string(format.JSONSchema.Schema), service)
	}
	assert.Equal(t, schema, given.GetResponseSchema().GetJsonSchema(), "the caller's is as it was")
}

// OpenAI's later models have another name for the bound of output tokens, whatever stands before theirs.
func TestTheNameOfTheBoundOfOutputTokens(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"gpt-5": "max_completion_tokens", "openai/gpt-5": "max_completion_tokens", "openai/o4-mini:free": "max_completion_tokens", "my-gpt-6-sol": "max_completion_tokens", "o3": "max_completion_tokens",
		"openai/gpt-4o": "max_tokens", "openai/gpt-oss-120b": "max_tokens", "gpt-35-turbo": "max_tokens", "acme/demo3": "max_tokens",
	} {
		members, _ := sent(t, "openrouter", model, &provider.Request{Config: &modelv1.GenerateConfig{MaxTokens: new(int64(7))}})
		assert.Equal(t, "7", string(members[want]), model)
	}
}

// What OpenAI's models take as a strict schema, which closes every object and requires every property, few schemas of
// clients are: services that pass them on would refuse each call.
func TestToolsOfClientsAreNotStrict(t *testing.T) {
	t.Parallel()
	for client, want := range map[bool]string{false: `"strict":true`, true: `"strict":false`} {
		tools := []*toolv1.ToolInfo{{Name: "f", ParametersJson: `{"type":"object","properties":{"x":{"type":"string"}}}`}}
		members, _ := sent(t, "openrouter", "openai/gpt-4o", &provider.Request{Tools: tools, Client: client})
		assert.Contains(t, strings.ReplaceAll(string(members["tools"]), " ", ""), want)
	}
}
