package bedrock_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrock"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
)

const fine = `{"output":{"message":{"role":"assistant","content":[{"text":"fine"}]}},"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":2,"totalTokens":5}}`

// serving starts a server, and returns its address.
func serving(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	return server.URL
}

func asking(text string) *provider.Request {
	return &provider.Request{Messages: []*modelv1.ChatMessage{chat.User(text)}, Attempt: 1}
}

// frame is a frame of a stream.
func frame(kind, typeHeader, name, payload string) []byte {
	var b bytes.Buffer
	_ = eventstream.NewEncoder().Encode(&b, eventstream.Message{Headers: eventstream.Headers{
		{Name: typeHeader, Value: eventstream.StringValue(name)}, {Name: ":message-type", Value: eventstream.StringValue(kind)},
	}, Payload: []byte(payload)})
	return b.Bytes()
}

func event(name, payload string) []byte { return frame("event", ":event-type", name, payload) }

func exception(name, message string) []byte {
	return frame("exception", ":exception-type", name, `{"message":"`+message+`"}`)
}

// streaming answers with frames.
func streaming(frames ...[]byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		_, _ = w.Write(bytes.Join(frames, nil))
	}
}

// refusing answers with an error.
func refusing(status int, code, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if code != "" {
			w.Header().Set("X-Amzn-Errortype", code)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// The type of an error decides, and not its status.
func TestErrorsHaveTheirMeaning(t *testing.T) {
	t.Parallel()
	started := event("messageStart", `{"role":"assistant"}`)
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		want  provider.Error
	}{
		"throttled":               {refusing(429, "ThrottlingException:http://internal.amazon.com/", `{"message":"Slow down."}`), provider.Error{Class: provider.RateLimit, Status: 429, Message: "Slow down."}},
		"throttled, in the body":  {refusing(400, "", `{"__type":"com.amazon#RequestLimitExceeded","message":"m"}`), provider.Error{Class: provider.RateLimit, Status: 400}},
		"down":                    {refusing(503, "ServiceUnavailableException", `{"message":"m"}`), provider.Error{Class: provider.Transient, Status: 503}},
		"a fault without a type":  {refusing(502, "", "<html>"), provider.Error{Class: provider.Final, Status: 502}},
		"a fault of the server":   {refusing(500, "InternalServerException", `{"message":"m"}`), provider.Error{Class: provider.Final, Status: 500}},
		"a late model":            {refusing(408, "ModelTimeoutException", `{"message":"m"}`), provider.Error{Class: provider.Final, Status: 408}},
		"a right":                 {refusing(403, "AccessDeniedException", `{"message":"m"}`), provider.Error{Class: provider.Final, Status: 403}},
		"a token that expired":    {refusing(403, "ExpiredTokenException", `{"message":"m"}`), provider.Error{Class: provider.Final, Status: 403, Auth: true}},
		"a wrong signature":       {refusing(403, "InvalidSignatureException", `{"message":"m"}`), provider.Error{Class: provider.Final, Status: 403, Auth: true}},
		"an unreadable answer":    {refusing(200, "", `{}`), provider.Error{Class: provider.Final, Status: 200, Invalid: true}},
		"throttled in a stream":   {streaming(started, exception("throttlingException", "m")), provider.Error{Class: provider.RateLimit, Status: 429}},
		"a stream that broke":     {streaming(started, exception("modelStreamErrorException", "m")), provider.Error{Class: provider.Transient, Status: 424}},
		"a fault in a stream":     {streaming(started, exception("internalServerException", "m")), provider.Error{Class: provider.Transient, Status: 500}},
		"a wrong request, late":   {streaming(started, exception("validationException", "m")), provider.Error{Class: provider.Final, Status: 400}},
		"a stream without events": {streaming(), provider.Error{Class: provider.Transient, Status: 200}},
		"a corrupt frame":         {streaming(started, []byte("no frame, but enough bytes for one")), provider.Error{Class: provider.Final, Invalid: true}},
	} {
		r := asking("q")
		if strings.Contains(name, "stream") || strings.Contains(name, "late") && name != "a late model" || strings.Contains(name, "frame") {
			r.Progress = func() {}
		}
		_, err := opened(t, claude45, serving(t, tt.serve)).Generate(t.Context(), r)
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, []any{tt.want.Class, tt.want.Auth, tt.want.Invalid, tt.want.Status}, []any{failure.Class, failure.Auth, failure.Invalid, failure.Status}, name)
		assert.Contains(t, failure.Message, tt.want.Message, name)
	}
	response, err := opened(t, claude45, serving(t, refusing(400, "ValidationException", `{"message":"Input is too long for requested model."}`))).Generate(t.Context(), asking("q"))
	require.NoError(t, err)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_MODEL_LENGTH, chat.StopReason(response.Output))
}

// AWS repeats in errors what was signed, the session token within it.
func TestCredentialsAreInNoErrorAndNoRecord(t *testing.T) {
	t.Parallel()
	const (
		id, key, token = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "session-token-of-the-account"
		said           = "The Canonical String should have been x-amz-security-token:" + token + " by " + id + " with " + key
	)
	started := event("messageStart", `{"role":"assistant"}`)
	piece := event("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"hello"}}`)
	for name, serve := range map[string]http.HandlerFunc{
		"an error":                     refusing(403, "InvalidSignatureException", `{"message":"`+said+`"}`),
		"an error that is no denial":   refusing(400, "ValidationException", `{"message":"`+said+`"}`),
		"a page":                       refusing(502, "", said),
		"in the midst of a stream":     streaming(started, piece, exception("validationException", said)),
		"at the beginning of a stream": streaming(exception("validationException", said)),
	} {
		r := asking("q")
		r.Record = provider.RecordAll
		if strings.Contains(name, "stream") {
			r.Progress = func() {}
		}
		_, err := opened(t, claude45, serving(t, serve)).Generate(t.Context(), r)
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		require.NotNil(t, failure.Call, name)
		for _, secret := range []string{id, key, token} {
			assert.NotContains(t, failure.Message+err.Error()+failure.Call.String(), secret, name)
		}
	}
}

// verify reports whether a request has the signature that the vendor's own signer computes for it.
func verify(t *testing.T, r *http.Request, body []byte) bool {
	t.Helper()
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	require.NoError(t, err)
	again, err := http.NewRequestWithContext(context.Background(), r.Method, "http://"+r.Host+r.URL.EscapedPath(), bytes.NewReader(body))
	require.NoError(t, err)
	_, names, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	for name := range strings.SplitSeq(names, ";") {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header[http.CanonicalHeaderKey(name)]
		}
	}
	hash := sha256.Sum256(body)
	c := signed("")
	err = v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{
		AccessKeyID: c.AccessKeyID.Reveal(), SecretAccessKey: c.SecretAccessKey.Reveal(), SessionToken: c.SessionToken.Reveal(),
	}, again, hex.EncodeToString(hash[:]), "bedrock", "us-east-1", at)
	require.NoError(t, err)
	return again.Header.Get("Authorization") == r.Header.Get("Authorization")
}

// Our requests are signed, and go where those of the vendor's own client go, whatever the model's id has in it.
func TestRequestsAreSignedAsTheVendorsClientSignsThem(t *testing.T) {
	t.Parallel()
	for _, id := range []string{claude45, opus47, "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0"} {
		var paths []string
		address := serving(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			assert.True(t, verify(t, r, body), "%s: %s", id, r.UserAgent())
			assert.Equal(t, "session-token-of-the-account", r.Header.Get("X-Amz-Security-Token"))
			paths = append(paths, r.URL.EscapedPath())
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, fine)
		})
		c := signed(address)
		_, err := bedrockruntime.New(bedrockruntime.Options{
			BaseEndpoint: &address, Region: "us-east-1", HTTPClient: http.DefaultClient,
			Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID.Reveal(), c.SecretAccessKey.Reveal(), c.SessionToken.Reveal()),
		}).Converse(t.Context(), &bedrockruntime.ConverseInput{ModelId: &id})
		require.NoError(t, err)
		response, err := opened(t, id, address).Generate(t.Context(), asking("q"))
		require.NoError(t, err)
		assert.Equal(t, id, response.Output.GetModel())
		assert.Equal(t, id, chat.FirstMessage(response.Output).GetModel())
		require.Len(t, paths, 2)
		assert.Equal(t, paths[0], paths[1])
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAnAPIKeyIsSentInThePlaceOfASignature(t *testing.T) {
	t.Parallel()
	address := serving(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer bedrock-api-key-of-the-account", r.Header.Get("Authorization"))
		assert.Empty(t, r.Header.Get("X-Amz-Date"))
		refusing(403, "AccessDeniedException", `{"message":"no bedrock-api-key-of-the-account"}`)(w, r)
	})
	p, err := kindOf(t, keyed(address)).Open(provider.Spec{Model: claude45, Account: provider.DefaultAccount})
	require.NoError(t, err)
	_, err = p.Generate(t.Context(), asking("q"))
	require.ErrorContains(t, err, "no *****")
}

// Streams need a right of their own. Without it the whole answer is asked for, and later calls ask for no stream.
func TestWithoutTheRightToStreamTheWholeAnswerIsAskedFor(t *testing.T) {
	t.Parallel()
	var paths []string
	address := serving(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path[strings.LastIndexByte(r.URL.Path, '/'):])
		if strings.HasSuffix(r.URL.Path, "-stream") {
			refusing(403, "AccessDeniedException", `{"message":"no"}`)(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, fine)
	})
	p := opened(t, claude45, address)
	r := asking("q")
	r.Progress = func() {}
	response, err := p.Generate(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, response.Warnings, 1)
	assert.Contains(t, response.Warnings[0], "bedrock:InvokeModelWithResponseStream")
	_, err = p.Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, []string{"/converse-stream", "/converse", "/converse"}, paths)

	always, err := kindOf(t, signed(address)).Open(provider.Spec{Model: claude45, Account: provider.DefaultAccount, Args: `{"streaming":true}`})
	require.NoError(t, err)
	_, err = always.Generate(t.Context(), r)
	require.ErrorContains(t, err, "no")
	assert.Equal(t, "/converse-stream", paths[len(paths)-1])
}

func TestWhatIsNotConfiguredIsSaid(t *testing.T) {
	t.Parallel()
	const notConfigured, invalid = errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST
	half := bedrock.Config{BaseURL: "http://x"}
	half.Region, half.AccessKeyID = "us-east-1", config.NewSecret("AKIA")
	profile := bedrock.Config{Accounts: map[string]bedrockaccess.Account{"work": {Account: awsauth.Account{Profile: "work"}}}}
	for name, tt := range map[string]struct {
		config bedrock.Config
		spec   provider.Spec
		reason errorsv1.ErrorReason
		says   string
	}{
		"nothing":                        {bedrock.Config{}, provider.Spec{Account: "default"}, notConfigured, "AWS_BEARER_TOKEN_BEDROCK"},
		"a key without a region":         {bedrock.Config{APIKey: config.NewSecret("key")}, provider.Spec{Account: "default"}, notConfigured, "AWS_REGION"},
		"half a key":                     {half, provider.Spec{Account: "default"}, notConfigured, "secret_access_key"},
		"an unknown account":             {profile, provider.Spec{Account: "home"}, invalid, "default, work"},
		"a region that is none":          {profile, provider.Spec{Account: "work", Args: `{"region_name":"evil.example/"}`}, invalid, "region_name: region must be"},
		"an unknown argument":            {profile, provider.Spec{Account: "work", Args: `{"region":"us-east-1"}`}, invalid, "region_name"},
		"an address that is not allowed": {profile, provider.Spec{Account: "work", BaseURL: "http://elsewhere"}, invalid, "allowed_base_urls"},
	} {
		tt.spec.Model = claude45
		_, err := kindOf(t, tt.config).Open(tt.spec)
		assert.Equal(t, tt.reason, rpcerr.Reason(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, tt.says, name)
	}
	accounts := kindOf(t, profile).Accounts
	require.Len(t, accounts, 2)
	assert.False(t, accounts[0].GetUsable())
	assert.Contains(t, accounts[0].GetProblem(), "AWS_REGION")
	assert.True(t, accounts[1].GetUsable())
	assert.Equal(t, "https://bedrock-runtime.us-east-1.amazonaws.com", kindOf(t, signed("")).Accounts[0].GetBaseUrl())
	require.ErrorContains(t, (&bedrock.Config{Accounts: map[string]bedrockaccess.Account{"x": {Account: awsauth.Account{Region: "X"}}}}).Validate(), "accounts.x: region must be")
	_, err := kindOf(t, signed("")).Open(provider.Spec{Model: claude45, Account: "default", BaseURL: "https://bedrock-runtime.us-east-1.amazonaws.com"})
	require.NoError(t, err, "AWS's own address may be asked for")
	require.NoError(t, half.Validate(), "variables of other programs do not stop the server")
	p, err := kindOf(t, bedrock.Config{APIKey: config.NewSecret("key")}).Open(provider.Spec{Model: claude45, Account: "default", Args: `{"region_name":"eu-west-1","read_timeout":60}`})
	require.NoError(t, err)
	unsent := provider.Fit(p, &modelv1.GenerateConfig{}).Unsent
	require.Len(t, unsent, 1)
	assert.Equal(t, "model_args.read_timeout", unsent[0].Option)
}

// Of options that a model does not take beside others, the one that is not sent is named.
func TestWhatGoesBeforeAnOptionIsSaid(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		model  string
		config *modelv1.GenerateConfig
		want   []string
	}{
		"sampling of a newer model":   {opus47, &modelv1.GenerateConfig{Temperature: new(0.5), TopP: new(0.5), TopK: new(int32(4))}, []string{"temperature", "top_p", "top_k"}},
		"sampling while it thinks":    {claude45, &modelv1.GenerateConfig{Temperature: new(0.5), ReasoningTokens: new(int64(2048))}, []string{"temperature"}},
		"sampling while it does not":  {claude45, &modelv1.GenerateConfig{Temperature: new(0.5)}, nil},
		"tokens beside an effort":     {opus47, &modelv1.GenerateConfig{ReasoningEffort: new("low"), ReasoningTokens: new(int64(2048)), Effort: new("high")}, []string{"reasoning_tokens", "effort"}},
		"a bound beside much effort":  {"amazon.nova-2-lite-v1:0", &modelv1.GenerateConfig{ReasoningEffort: new("high"), MaxTokens: new(int64(77))}, []string{"max_tokens"}},
		"the default bound beside it": {"amazon.nova-2-lite-v1:0", &modelv1.GenerateConfig{ReasoningEffort: new("high"), MaxTokens: new(int64(2048))}, nil},
		"an effort of an older model": {claude45, &modelv1.GenerateConfig{ReasoningEffort: new("low")}, []string{"reasoning_effort"}},
	} {
		var options []string
		unsent := provider.Fit(opened(t, tt.model, "http://x"), tt.config).Unsent
		for _, u := range unsent {
			options = append(options, u.Option)
		}
		assert.Equal(t, tt.want, options, name)
	}
}

// What is changed of a request is said with the answer.
func TestChangesOfARequestAreWarnedOf(t *testing.T) {
	t.Parallel()
	var body []byte
	address := serving(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, fine)
	})
	r := asking("q")
	r.Tools, r.ToolChoice = []*toolv1.ToolInfo{{Name: "f"}}, chat.FunctionChoice("f")
	for model, forced := range map[string]bool{"anthropic.claude-opus-5-5-v1": false, claude45: true, "amazon.nova-2-lite-v1:0": true} {
		response, err := opened(t, model, address).Generate(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, forced, strings.Contains(string(body), `"toolChoice":{"tool":{"name":"f"}}`), model)
		assert.Len(t, response.Warnings, map[bool]int{true: 0, false: 1}[forced], model)
	}
	r = asking("q")
	for _, tokens := range []int64{0, 3000} {
		r.Config = &modelv1.GenerateConfig{ReasoningTokens: &tokens}
		response, err := opened(t, opus47, address).Generate(t.Context(), r)
		require.NoError(t, err)
		assert.Contains(t, strings.Join(response.Warnings, ""), "does not think within a number of tokens")
		assert.Contains(t, string(body), `"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}`)
		_, err = opened(t, claude45, address).Generate(t.Context(), r)
		require.NoError(t, err)
		assert.Contains(t, string(body), fmt.Sprintf(`"thinking":{"type":"enabled","budget_tokens":%d}`, tokens))
	}
	result := chat.ToolMessage(&toolv1.ToolResult{CallId: "c", Function: "f", Content: chat.TextContent("r")})
	r.Messages = append(r.Messages, chat.Assistant("", chat.Call("c", "f", "{}")), result)
	for _, client := range []bool{true, false} {
		r.Client = client
		_, err := opened(t, claude45, address).Generate(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, !client, strings.Contains(string(body), `"thinking"`), "a client's turn began without thinking")
	}
}

// Names say which options a model has.
func TestWhatNamesSay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		bound   int64
		reasons bool
		caches  bool
	}{
		claude45: {2048, true, true}, opus47: {2048, true, true}, "anthropic.claude-v2:1": {2048, false, false}, "anthropic.claude-3-5-sonnet-20240620-v1:0": {4096, false, false},
		"anthropic.claude-3-5-sonnet-20241022-v2:0": {4096, false, true}, "anthropic.claude-3-7-sonnet-20250219-v1:0": {4096, true, true},
		"meta.llama3-70b-instruct-v1:0": {2048, false, false}, "meta.llama3-1-405b-instruct-v1:0": {4096, false, false}, "mistral.mistral-large-2407-v1:0": {8192, false, false},
		"amazon.nova-pro-v1:0": {2048, false, true}, "us.amazon.nova-pro-v1:0": {2048, false, true}, "amazon.nova-2-lite-v1:0": {2048, true, true}, "openai.gpt-oss-20b-1:0": {2048, true, false},
	} {
		c := opened(t, name, "http://x").Capabilities()
		assert.Equal(t, tt.bound, c.MaxTokens, name)
		assert.Equal(t, tt.reasons, c.Features.GetReasoning(), name)
		assert.Equal(t, tt.caches, !strings.Contains(strings.Join(c.Dropped, " "), "cache_prompt"), name)
	}
}
