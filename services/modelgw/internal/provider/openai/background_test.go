package openai_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
)

const pending = `{"id":"resp_1","status":"queued","output":[]}`

// behind is a server that answers in the background, with these answers to questions for the answer.
type behind struct {
	mu      sync.Mutex
	answers []string
	asked   []string
	body    string
	// polled is called for each question.
	polled func()
}

// ServeHTTP implements http.Handler.
func (b *behind) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, r.Method+" "+r.URL.RequestURI())
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodGet:
		if b.polled != nil {
			b.polled()
		}
		answer := b.answers[0]
		if len(b.answers) > 1 {
			b.answers = b.answers[1:]
		}
		if !strings.HasPrefix(answer, "{") {
			w.WriteHeader(http.StatusBadGateway)
		}
		_, _ = io.WriteString(w, answer)
	case strings.Contains(r.URL.Path, "/cancel"):
		_, _ = io.WriteString(w, `{}`)
	default:
		raw, _ := io.ReadAll(r.Body)
		b.body = string(raw)
		_, _ = io.WriteString(w, pending)
	}
}

func (b *behind) open(t *testing.T, model, args string) provider.Provider {
	t.Helper()
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	kind, closeIdle := openai.KindPolling(openai.Config{
		APIKey: config.NewSecret("k"), BaseURL: server.URL + "/v1",
		Azure: openai.AzureConfig{APIKey: config.NewSecret("k"), BaseURL: server.URL},
	})
	t.Cleanup(func() { _ = closeIdle() })
	p, err := kind.Open(provider.Spec{Model: model, Account: provider.DefaultAccount, Args: args})
	require.NoError(t, err)
	return p
}

func question() *provider.Request {
	return &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Record: provider.RecordAll}
}

// The answer is asked for until it is there; questions that are lost are asked again.
func TestAnAnswerInTheBackgroundIsAskedFor(t *testing.T) {
	t.Parallel()
	b := &behind{answers: []string{pending, "lost", `{"id":"resp_1","status":"in_progress","output":[]}`, answered}}
	response, err := b.open(t, "gpt-5", `{"background":true,"streaming":true}`).Generate(t.Context(), question())
	require.NoError(t, err)
	assert.Equal(t, "fine", chat.Completion(response.Output))
	const poll = "GET /v1/responses/resp_1"
	assert.Equal(t, []string{"POST /v1/responses", poll, poll, poll, poll}, b.asked)
	assert.Contains(t, b.body, `"background":true`)
	assert.NotContains(t, b.body, `"stream":true`)
	assert.Contains(t, response.Call.GetResponseJson(), "fine", "the whole answer is recorded")
}

// A caller that leaves does not pay for the rest.
func TestAnAnswerInTheBackgroundIsCancelledWithItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := &behind{answers: []string{pending}, polled: cancel}
	_, err := b.open(t, "azure/gpt-5", `{"background":true}`).Generate(ctx, question())
	require.ErrorIs(t, err, context.Canceled)
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Equal(t, "POST /openai/responses/resp_1/cancel?api-version=2025-03-01-preview", b.asked[len(b.asked)-1])
}

// carried answers a request in a batch.
type carried struct{ body string }

// Carry implements provider.Carrier.
func (c *carried) Carry(_ context.Context, post provider.Post) (*http.Response, error) {
	c.body = string(post.Body)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(pending))}, nil
}

// A batch is in the background as a whole, and nothing asks for an answer of it, whatever it says.
func TestARequestInABatchIsNotInTheBackground(t *testing.T) {
	t.Parallel()
	b := &behind{}
	for name, tt := range map[string]struct{ args, extra, unsent string }{
		"by its name":       {`{"responses_api":true}`, "", ""},
		"by an argument":    {`{"responses_api":true,"background":true}`, "", "model_args.background"},
		"by the extra body": {`{"responses_api":true}`, `{"background":true}`, "extra_body.background"},
	} {
		p := b.open(t, "gpt-5-pro", tt.args)
		c := &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{Enabled: true}}
		if tt.extra != "" {
			c.ExtraBodyJson = &tt.extra
		}
		unsent := provider.Fit(p, c).Unsent
		var names []string
		for _, one := range unsent {
			names = append(names, one.Option)
		}
		assert.Equal(t, tt.unsent != "", slices.Contains(names, tt.unsent), "%s: %v", name, names)
		in, r := &carried{}, question()
		r.Carrier, r.Config = in, c
		_, err := p.Generate(t.Context(), r)
		require.NoError(t, err, name)
		assert.NotContains(t, in.body, "background", name)
	}
	assert.Empty(t, b.asked)
}

// A failure that the server reports later is the call's own.
func TestAnAnswerInTheBackgroundMayFail(t *testing.T) {
	t.Parallel()
	b := &behind{answers: []string{`{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"oops"},"output":[]}`}}
	_, err := b.open(t, "gpt-5", `{"background":true}`).Generate(t.Context(), question())
	failure, ok := provider.As(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "oops", failure.Message)
}

// Models that answer after minutes are asked in the background without an argument, which may say otherwise.
func TestWhichCallsAreInTheBackground(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		model, args string
		config      *modelv1.GenerateConfig
		background  bool
	}{
		{"gpt-5", `{"responses_api":true}`, nil, false},
		{"gpt-5-pro", `{"responses_api":true}`, nil, true},
		{"o3-deep-research", `{"responses_api":true}`, nil, true},
		{"o3-deep-research", `{"responses_api":true,"background":false}`, nil, false},
		{"gpt-5.6", `{"responses_api":true}`, &modelv1.GenerateConfig{ReasoningMode: new("pro")}, true},
		{"gpt-5", `{"responses_api":true}`, &modelv1.GenerateConfig{ReasoningMode: new("pro")}, true},
		{"gpt-5", `{"responses_api":true}`, &modelv1.GenerateConfig{ReasoningMode: new("standard")}, false},
		{"gpt-5", `{"responses_api":true}`, &modelv1.GenerateConfig{ExtraBodyJson: new(`{"background":true}`)}, true},
	} {
		b := &behind{answers: []string{answered}}
		request := question()
		request.Config = tt.config
		p := b.open(t, tt.model, tt.args)
		_, err := p.Generate(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, tt.background, strings.Contains(b.body, `"background":true`), "%s %s", tt.model, tt.args)
	}
}
