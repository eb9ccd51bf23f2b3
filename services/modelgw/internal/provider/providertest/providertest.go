// Package providertest is the suite that every provider.Provider passes, and the driver of recorded cases.
package providertest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Answer is the upstream API's answer to the next attempt.
type Answer struct {
	Text string
	// Function and Arguments are a call of a tool, where Function is set.
	Function, Arguments string
	// Status is the HTTP status of a failure; 0 is a success.
	Status     int
	RetryAfter time.Duration
	// Delay is how long it takes.
	Delay time.Duration
}

// Harness describes a provider to test.
type Harness struct {
	// New makes a provider whose upstream API gives these answers in order, one an attempt.
	New func(t *testing.T, answers ...Answer) provider.Provider
	// LacksStatuses are the statuses that its protocol has no counterpart of.
	LacksStatuses []int
	// NoTools means that the API takes none of the suite's tools.
	NoTools bool
	// Busy means that the API asks to slow down with the status 503 too.
	Busy bool
	// NoServer means that no server answers, so that there is no address.
	NoServer bool
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.NoTools {
		plain := h.New
		h.New = func(t *testing.T, answers ...Answer) provider.Provider { return toolless{plain(t, answers...)} }
	}
	for name, test := range map[string]func(*testing.T, Harness){
		"an answer has a text, a model, a source and a time": answers,
		"a call of a tool keeps its arguments":               calls,
		"arguments that are no JSON are a parse error":       badArguments,
		"a stream says what the answer says":                 streams,
		"failures have a class":                              classes,
		"an attempt ends with its context":                   ends,
		"a record is there when it is asked for":             records,
		"a record holds what was streamed":                   recordsStreams,
		"capabilities do not change":                         capabilities,
		"options that are ignored exist":                     ignored,
		"two servers have two addresses":                     servers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h)
		})
	}
}

// toolless is a provider that is offered no tools.
type toolless struct{ provider.Provider }

// Generate implements provider.Provider.
func (p toolless) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	without := *r
	without.Tools, without.ToolChoice = nil, nil
	return p.Provider.Generate(ctx, &without)
}

var weather = &toolv1.ToolInfo{
	Name: "weather", Description: "Tells the weather of a city.",
	ParametersJson: `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`,
}

func request(text string) *provider.Request {
	return &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User(text)}, Tools: []*toolv1.ToolInfo{weather},
		ToolChoice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), Config: &modelv1.GenerateConfig{}, Attempt: 1,
	}
}

func answers(t *testing.T, h Harness) {
	p := h.New(t, Answer{Text: "fine"})
	response, err := p.Generate(t.Context(), request("how are you?"))
	require.NoError(t, err)
	output := response.Output
	message := chat.FirstMessage(output)
	require.NotNil(t, message)
	assert.Equal(t, "fine", chat.Completion(output))
	assert.Equal(t, modelv1.StopReason_STOP_REASON_STOP, chat.StopReason(output))
	assert.NotEmpty(t, output.GetModel())
	assert.NotEmpty(t, message.GetId())
	assert.Equal(t, modelv1.Role_ROLE_ASSISTANT, message.GetRole())
	assert.Equal(t, modelv1.MessageSource_MESSAGE_SOURCE_GENERATE, message.GetSource())
	assert.NotNil(t, output.GetUsage())
	assert.NotNil(t, output.Time)
}

func calls(t *testing.T, h Harness) {
	const arguments = `{"city": "Oslo", "big": 123456789012345678901234567890, "a": 1.0}`
	p := h.New(t, Answer{Function: "weather", Arguments: arguments})
	response, err := p.Generate(t.Context(), request("weather?"))
	require.NoError(t, err)
	called := chat.FirstMessage(response.Output).GetToolCalls()
	require.Len(t, called, 1)
	assert.Equal(t, "weather", called[0].GetFunction())
	assert.Equal(t, arguments, called[0].GetArgumentsJson(), "digits and order survive")
	assert.NotEmpty(t, called[0].GetId())
	assert.Nil(t, called[0].ParseError)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_TOOL_CALLS, chat.StopReason(response.Output))
}

func badArguments(t *testing.T, h Harness) {
	if h.NoTools {
		return // It gives no calls.
	}
	p := h.New(t, Answer{Function: "weather", Arguments: `{"city": `}, Answer{Function: "weather", Arguments: "Oslo"})
	response, err := p.Generate(t.Context(), request("weather?"))
	require.NoError(t, err)
	broken := chat.FirstMessage(response.Output).GetToolCalls()[0]
	assert.NotEmpty(t, broken.GetParseError())
	assert.Equal(t, "{}", broken.GetArgumentsJson())
	response, err = p.Generate(t.Context(), request("weather?"))
	require.NoError(t, err)
	bare := chat.FirstMessage(response.Output).GetToolCalls()[0]
	assert.JSONEq(t, `{"city": "Oslo"}`, bare.GetArgumentsJson(), "bare text is the first parameter")
}

func streams(t *testing.T, h Harness) {
	if !h.New(t, Answer{}).Capabilities().Features.GetStreaming() {
		t.Skip("the provider does not stream")
	}
	text := strings.Repeat("a rather long answer ", 20)
	p := h.New(t, Answer{Text: text, Function: "weather", Arguments: `{"city":"Oslo"}`})
	r, progress := request("q"), 0
	var said, arguments, function string
	r.Progress = func() { progress++ }
	held := 0
	r.Hold = func(_ context.Context, n int) error {
		held += n
		return nil
	}
	r.Stream = func(d *modelv1.GenerateDelta) {
		said += d.GetText()
		arguments += d.GetToolCall().GetArguments()
		function += d.GetToolCall().GetFunction()
	}
	response, err := p.Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, text, chat.Completion(response.Output))
	assert.Equal(t, text, said)
	assert.Equal(t, "weather", function)
	assert.JSONEq(t, `{"city":"Oslo"}`, arguments)
	assert.Greater(t, progress, 1)
	assert.GreaterOrEqual(t, held, len(text), "what a stream says is held")
	assert.NotNil(t, response.Output.GetUsage())
}

func classes(t *testing.T, h Harness) {
	for status, want := range map[int]provider.Class{
		429: provider.RateLimit, 500: provider.Transient, 503: provider.Transient, 408: provider.Transient, 400: provider.Final, 401: provider.Final, 409: provider.Final,
	} {
		if slices.Contains(h.LacksStatuses, status) {
			continue
		}
		if status == 503 && h.Busy {
			want = provider.RateLimit
		}
		p := h.New(t, Answer{Status: status, RetryAfter: 7 * time.Second})
		_, err := p.Generate(t.Context(), request("q"))
		failure, ok := provider.As(err)
		require.True(t, ok, "%d: %v", status, err)
		assert.Equal(t, want, failure.Class, status)
		assert.Equal(t, status, failure.Status)
		assert.Equal(t, status == 401, failure.Auth)
		if status == 429 {
			assert.Equal(t, 7*time.Second, failure.RetryAfter)
		}
	}
}

func ends(t *testing.T, h Harness) {
	p := h.New(t, Answer{Text: "late", Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := p.Generate(ctx, request("q"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, isUpstream := provider.As(err)
	assert.False(t, isUpstream, "an attempt that we end is no failure of the API")
}

func records(t *testing.T, h Harness) {
	const delay = 20 * time.Millisecond
	p := h.New(t, Answer{Text: "yes"}, Answer{Text: "yes", Delay: delay})
	r := request("how are you?")
	response, err := p.Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Nil(t, response.Call)
	r.Record = provider.RecordAll
	response, err = p.Generate(t.Context(), r)
	require.NoError(t, err)
	require.NotNil(t, response.Call)
	assert.Contains(t, response.Call.GetRequestJson(), "how are you?")
	assert.Contains(t, response.Call.GetResponseJson(), "yes")
	assert.False(t, response.Call.GetError())
	assert.GreaterOrEqual(t, response.Call.GetTime(), delay.Seconds(), "seconds on the wire")
}

// recordsStreams: both a follower of an answer and a bound of its silence make the attempt stream, and the record has
// the stream.
func recordsStreams(t *testing.T, h Harness) {
	p := h.New(t, Answer{Text: "fine"})
	r := request("how are you?")
	r.Record, r.Progress = provider.RecordAll, func() {}
	response, err := p.Generate(t.Context(), r)
	require.NoError(t, err)
	require.True(t, json.Valid([]byte(response.Call.GetResponseJson())), response.Call.GetResponseJson())
	assert.Contains(t, response.Call.GetResponseJson(), "fin")
}

func capabilities(t *testing.T, h Harness) {
	p := h.New(t, Answer{})
	first := p.Capabilities()
	_, err := p.Generate(t.Context(), request("q"))
	require.NoError(t, err)
	assert.Equal(t, first, p.Capabilities())
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
}

// servers checks that providers with servers of their own are told apart.
func servers(t *testing.T, h Harness) {
	one, other := h.New(t).Capabilities().Server, h.New(t).Capabilities().Server
	if h.NoServer {
		assert.Empty(t, one)
		return
	}
	assert.NotEmpty(t, one)
	assert.NotEqual(t, one, other)
}

func ignored(t *testing.T, h Harness) {
	options := (&modelv1.GenerateConfig{}).ProtoReflect().Descriptor().Fields()
	for _, name := range h.New(t).Capabilities().Ignored {
		assert.NotNil(t, options.ByName(protoreflect.Name(name)), name)
	}
}
