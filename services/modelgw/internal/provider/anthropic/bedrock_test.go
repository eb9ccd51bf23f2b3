package anthropic_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

const onBedrock = "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0"

// bedrockAt is a configuration of Bedrock at an address, whose requests are signed.
func bedrockAt(address string) anthropic.Config {
	c := anthropic.Config{APIKey: config.NewSecret("key-of-anthropic"), Bedrock: anthropic.BedrockConfig{BaseURL: address}}
	c.Bedrock.AccessKeyID, c.Bedrock.SecretAccessKey = config.NewSecret("AKIAIOSFODNN7EXAMPLE"), config.NewSecret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
	c.Bedrock.SessionToken, c.Bedrock.Region = config.NewSecret("session-token-of-the-account"), "us-east-1"
	return c
}

func TestSuiteOnBedrock(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		p, err := openModel(t, bedrockAt(providertest.InvokeServer(t, answers...)), provider.Spec{Model: onBedrock})
		require.NoError(t, err)
		return p
	}})
}

// No option of a configuration is passed over without a word.
func TestEveryOptionIsSentToBedrockOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"anthropic.claude-3-haiku-20240307-v1:0", "anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-opus-4-8", "anthropic.claude-sonnet-5-5"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider {
				c := anthropic.Config{Bedrock: anthropic.BedrockConfig{BaseURL: root, APIKey: config.NewSecret("bedrock-api-key-of-the-account")}}
				p, err := openModel(t, c, provider.Spec{Model: "bedrock/" + name})
				require.NoError(t, err)
				return p
			})
		})
	}
}

// A request is in Bedrock's own form, with what it lacks left out, and is signed for the account.
func TestARequestToBedrock(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, body = r, string(raw)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}`)
	}))
	t.Cleanup(server.Close)
	p, err := openModel(t, bedrockAt(server.URL), provider.Spec{Model: onBedrock, Args: `{"streaming":false,"betas":["a-beta"]}`})
	require.NoError(t, err)
	fallback := &modelv1.GenerateConfig{FallbackModels: &modelv1.StringList{Values: []string{"m"}}}
	fallback.ExtraHeaders = &modelv1.HeaderMap{Values: map[string]string{"anthropic-beta": "of-one, of-both", "Anthropic_Beta": "of-other,of-both"}}
	fitted := provider.Fit(p, fallback)
	assert.Equal(t, []provider.Unsent{{Option: "fallback_models", Why: "which does not take it"}}, fitted.Unsent)
	_, err = p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: fitted.Sent})
	require.NoError(t, err)
	assert.Equal(t, "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke", got.URL.EscapedPath())
	assert.Contains(t, got.Header.Get("Authorization"), "/us-east-1/bedrock/aws4_request")
	assert.Equal(t, []string{"", ""}, []string{got.Header.Get("X-Api-Key"), got.Header.Get("Anthropic-Version")})
	assert.JSONEq(t, `{"messages":[{"role":"user","content":"q"}],"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["a-beta","of-other","of-both","of-one"]}`, body)
	_, counts := p.(provider.TokenCounter)
	assert.False(t, counts)
	assert.Empty(t, p.Capabilities().Upstreams, "a client's request is not in Bedrock's form")
	assert.Equal(t, onBedrock, p.Capabilities().ConnectionKey)
}

// An exception within a stream has the meaning that AWS documents.
func TestExceptionsWithinAStreamOfBedrock(t *testing.T) {
	t.Parallel()
	for exception, want := range map[string]provider.Class{
		"throttlingException": provider.RateLimit, "internalServerException": provider.Transient, "modelStreamErrorException": provider.Transient,
		"serviceUnavailableException": provider.Transient, "modelTimeoutException": provider.Transient, "validationException": provider.Final,
	} {
		t.Run(exception, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
				frames := awsstream.NewWriter(w)
				_ = frames.Send(awsstream.KindEvent, awsstream.HeaderEvent, "chunk",
					[]byte(`{"bytes":"eyJ0eXBlIjoibWVzc2FnZV9zdGFydCIsIm1lc3NhZ2UiOnsidHlwZSI6Im1lc3NhZ2UiLCJjb250ZW50IjpbXX19"}`))
				_ = frames.Send(awsstream.KindException, awsstream.HeaderException, exception, []byte(`{"message":"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}`))
			}))
			t.Cleanup(server.Close)
			p, err := openModel(t, bedrockAt(server.URL), provider.Spec{Model: onBedrock, Args: `{"streaming":true}`})
			require.NoError(t, err)
			_, err = p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Record: provider.RecordAll})
			failure, ok := provider.As(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, want, failure.Class, "%v", err)
			assert.NotContains(t, err.Error()+failure.Call.GetResponseJson(), "wJalrXUtnFEMI")
		})
	}
}

// Errors are AWS's: the type is in a header, and some types are final whatever the status.
func TestErrorsOfBedrock(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status         int
		kind, message  string
		class          provider.Class
		auth, isOutput bool
	}{
		"too fast":        {429, "ThrottlingException", "slow down", provider.RateLimit, false, false},
		"refused":         {403, "UnrecognizedClientException", "no", provider.Final, true, false},
		"no right":        {403, "AccessDeniedException", "no", provider.Final, false, false},
		"a fault":         {500, "InternalServerException", "oops", provider.Transient, false, false},
		"a full context":  {400, "ValidationException", "Input is too long for requested model.", provider.Final, false, true},
		"another request": {400, "ValidationException", "malformed", provider.Final, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Amzn-Errortype", tt.kind+":http://internal.amazon.com/")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, `{"message":"`+tt.message+`"}`)
			}))
			t.Cleanup(server.Close)
			p, err := openModel(t, bedrockAt(server.URL), provider.Spec{Model: onBedrock})
			require.NoError(t, err)
			response, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
			if tt.isOutput {
				require.NoError(t, err)
				assert.Equal(t, modelv1.StopReason_STOP_REASON_MODEL_LENGTH, chat.StopReason(response.Output))
				return
			}
			failure, ok := provider.As(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, []any{tt.class, tt.auth, tt.message}, []any{failure.Class, failure.Auth, failure.Message})
		})
	}
}

// The vendor's own client reads what the suite's server streams, so that both agree on the frames.
func TestAWSsClientReadsTheServerOfTheSuite(t *testing.T) {
	t.Parallel()
	address := providertest.InvokeServer(t, providertest.Answer{Text: "hello there"})
	client := bedrockruntime.New(bedrockruntime.Options{
		Region: "us-east-1", BaseEndpoint: &address, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
	answer, err := client.InvokeModelWithResponseStream(t.Context(), &bedrockruntime.InvokeModelWithResponseStreamInput{
		ModelId: new("m"), Body: []byte(`{}`), ContentType: aws.String("application/json"),
	})
	require.NoError(t, err)
	defer answer.GetStream().Close()
	var all strings.Builder
	for event := range answer.GetStream().Events() {
		chunk, ok := event.(*types.ResponseStreamMemberChunk)
		require.True(t, ok)
		all.Write(chunk.Value.Bytes)
	}
	require.NoError(t, answer.GetStream().Err())
	assert.Contains(t, all.String(), `"type":"message_start"`)
	assert.Contains(t, all.String(), `"type":"message_stop"`)
}

// An account without the right to a stream gets whole answers, and a warning once.
func TestAnAccountOfBedrockWithoutTheRightToAStream(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path[strings.LastIndexByte(r.URL.Path, '/'):])
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "-stream") {
			w.Header().Set("X-Amzn-Errortype", "AccessDeniedException")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"message":"not authorized to perform: bedrock:InvokeModelWithResponseStream"}`)
			return
		}
		_, _ = io.WriteString(w, `{"type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}`)
	}))
	t.Cleanup(server.Close)
	p, err := openModel(t, bedrockAt(server.URL), provider.Spec{Model: onBedrock})
	require.NoError(t, err)
	for _, warnings := range []int{1, 0} {
		response, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Progress: func() {}})
		require.NoError(t, err)
		assert.Equal(t, "fine", chat.Completion(response.Output))
		assert.Len(t, response.Warnings, warnings)
	}
	assert.Equal(t, []string{"/invoke-with-response-stream", "/invoke", "/invoke"}, asked)
}
