package sagemaker_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/sagemaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	var c sagemaker.Config
	require.NoError(t, config.Load(t.Context(), &c, "", setup.LookUp))
	c.AllowedBaseURLs = []string{setup.Root}
	return kindOf(t, c)
}

func kindOf(t testing.TB, c sagemaker.Config) provider.Kind {
	t.Helper()
	kind, closeIdle := sagemaker.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

func signed(address string) sagemaker.Config {
	c := sagemaker.Config{BaseURL: address}
	c.AccessKeyID, c.SecretAccessKey, c.Region = config.NewSecret("AKIAIOSFODNN7EXAMPLE"), config.NewSecret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), "us-east-1"
	return c
}

func opened(t testing.TB, address, args string) provider.Provider {
	t.Helper()
	p, err := kindOf(t, signed(address)).Open(provider.Spec{Model: "river", Account: provider.DefaultAccount, Args: args})
	require.NoError(t, err)
	return p
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/sagemaker/*.json"}, open)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		return opened(t, providertest.SageMakerServer(t, answers...), "")
	}})
}

// No option of a configuration is dropped silently.
func TestEveryOptionIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	providertest.Options(t, func(t *testing.T, root string) provider.Provider { return opened(t, root, "") })
}

// The address of a model has the region of the account's profile: an endpoint of the same name elsewhere may be another
// model.
func TestTheRegionOfAProfileIsInTheAddress(t *testing.T) {
	c := sagemaker.Config{Accounts: map[string]sagemaker.Account{"a": {Account: awsauth.Account{Profile: "work"}}}}
	for region, args := range map[string]string{"eu-north-1": "", "us-west-2": `{"region_name":"us-west-2"}`} {
		providertest.AWSProfile(t, "eu-north-1")
		p, err := kindOf(t, c).Open(provider.Spec{Model: "river", Account: "a", Args: args})
		require.NoError(t, err)
		assert.Equal(t, "https://runtime.sagemaker."+region+".amazonaws.com", p.Capabilities().Server)
	}
	c.Accounts["a"] = sagemaker.Account{Account: awsauth.Account{Profile: "nowhere"}}
	_, err := kindOf(t, c).Open(provider.Spec{Model: "river", Account: "a"})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED), "%v", err)
}

// What a model's container says is behind SageMaker's own words. What SageMaker says of itself has a type, mostly in a
// header.
func TestErrorsHaveTheirMeaning(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status     int
		kind, body string
		class      provider.Class
		auth       bool
		says       string
	}{
		"a container that is late": {424, "ModelError", `{"Message":"Received no answer","OriginalMessage":"","OriginalStatusCode":0,"ErrorCode":"x"}`, provider.Transient, false, "no answer"},
		"a container that is down": {424, "ModelError", `{"Message":"Received server error (503)","OriginalMessage":"busy","OriginalStatusCode":503}`, provider.Transient, false, "busy"},
		"a fault of a container":   {424, "ModelError", `{"Message":"Received server error (500)","OriginalMessage":"{\"error\":{\"message\":\"broke\"}}","OriginalStatusCode":500}`, provider.Final, false, "broke"},
		"SageMaker's own":          {503, "", `{"Message":"Busy."}`, provider.Transient, false, "Busy."},
		"a refusal":                {400, "ValidationError", `{"message":"no"}`, provider.Final, false, "no"},
		"throttled":                {400, "ThrottlingException:http://internal.amazon.com/", `{"message":"Slow down."}`, provider.RateLimit, false, "Slow down."},
		"throttled, in the body":   {400, "", `{"__type":"com.amazon#ThrottlingException","message":"Slow down."}`, provider.RateLimit, false, "Slow down."},
		"a token that expired":     {403, "ExpiredTokenException", `{"message":"old"}`, provider.Final, true, "old"},
		"a right":                  {403, "AccessDeniedException", `{"message":"no"}`, provider.Final, false, "no"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "part", r.Header.Get("X-Amzn-Sagemaker-Inference-Component"))
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Amzn-Errortype", tt.kind)
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		}))
		_, err := opened(t, server.URL, `{"inference_component_name":"part"}`).Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
		server.Close()
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, []any{tt.class, tt.auth}, []any{failure.Class, failure.Auth}, name)
		assert.Contains(t, failure.Message, tt.says, name)
	}
}

func TestWhatIsNotConfiguredOrNotBuiltIsSaid(t *testing.T) {
	t.Parallel()
	for args, reason := range map[string]errorsv1.ErrorReason{
		`{"completion_mode":true}`:            errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET,
		`{"endpoint_url":"http://elsewhere"}`: errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST,
		`{"region_name":"evil.example/"}`:     errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST,
	} {
		_, err := kindOf(t, signed("")).Open(provider.Spec{Model: "river", Account: provider.DefaultAccount, Args: args})
		assert.Equal(t, reason, rpcerr.Reason(err), "%s: %v", args, err)
	}
	_, err := kindOf(t, signed("")).Open(provider.Spec{Model: "river", Account: provider.DefaultAccount, Args: `{"endpoint_url":"https://runtime.sagemaker.us-east-1.amazonaws.com"}`})
	require.NoError(t, err, "AWS's own address may be asked for")
	kind := kindOf(t, sagemaker.Config{})
	_, err = kind.Open(provider.Spec{Model: "river", Account: provider.DefaultAccount})
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, rpcerr.Reason(err))
	assert.False(t, kind.Accounts[0].GetUsable())
	unsent := provider.Fit(opened(t, "", `{"read_timeout":5}`), &modelv1.GenerateConfig{ReasoningEffort: new("none")}).Unsent
	assert.Len(t, unsent, 2)
}

// A server such as vLLM refuses a stream with log-probabilities of the prompt.
func TestLogProbabilitiesOfThePromptComeWithAWholeAnswer(t *testing.T) {
	t.Parallel()
	for args, config := range map[string]*modelv1.GenerateConfig{
		`{"prompt_logprobs":1}`: {}, `{}`: {PromptLogprobs: new(int32(1))},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "/endpoints/river/invocations", r.URL.Path, args)
			_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"a"},"finish_reason":"stop","prompt_logprobs":[null,{"9":{"logprob":-1,"decoded_token":"q"}}]}]}`))
		}))
		response, err := opened(t, server.URL, args).Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: config, Stream: func(*modelv1.GenerateDelta) {},
		})
		server.Close()
		require.NoError(t, err, args)
		assert.Equal(t, "a", chat.Completion(response.Output), args)
	}
}

// Frames cut the text of a stream anywhere. An exception ends it, and may not recur.
func TestAStreamIsInFrames(t *testing.T) {
	t.Parallel()
	const text = "data: {\"choices\":[{\"delta\":{\"content\":\"Größe\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	for cut := range len(text) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "/endpoints/river/invocations-response-stream", r.URL.Path)
			w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
			frames := awsstream.NewWriter(w)
			assert.NoError(t, frames.Send(awsstream.KindEvent, awsstream.HeaderEvent, "PayloadPart", []byte(text[:cut])))
			if cut%2 == 1 {
				assert.NoError(t, frames.Send(awsstream.KindException, awsstream.HeaderException, "ModelStreamError", []byte(`{"Message":"broke","ErrorCode":"StreamBroken"}`)))
				return
			}
			assert.NoError(t, frames.Send(awsstream.KindEvent, awsstream.HeaderEvent, "PayloadPart", []byte(text[cut:])))
		}))
		response, err := opened(t, server.URL, `{"stream":true}`).Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
		server.Close()
		if cut%2 == 0 {
			require.NoError(t, err, cut)
			assert.Equal(t, "Größe", chat.Completion(response.Output), cut)
			continue
		}
		if strings.Contains(text[:cut], "[DONE]\n\n") {
			continue // The end had come before.
		}
		failure, ok := provider.As(err)
		require.True(t, ok, "%d: %v", cut, err)
		assert.Equal(t, provider.Transient, failure.Class, cut)
		assert.Contains(t, failure.Message, "broke", cut)
	}
}
