package modelgw_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// What was said is most wanted where it went wrong: it travels with the error.
func TestTheRecordOfACallThatFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ kind, body, want string }{
		"no answer":        {"text/html", "<p>ill</p>", `{"body":"<p>ill</p>"}`},
		"another document": {"application/json", `{"ill": 1.0}`, `{"ill":1.0}`},
		"half a stream":    {"text/event-stream", "data: {\"ill\": tr\n\n", `{"events":["{\"ill\": tr"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vendorWith(t, says(200, tt.kind, tt.body))
			g := start(t, func(c *modelgw.Config, _ *modelgw.Deps) {
				c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret("any"), v.URL+"/v1"
				c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("any"), v.URL
			})
			for _, asked := range []*modelv1.GenerateRequest{{RecordCall: true}, {RecordFailedCall: true}} {
				for model, args := range map[string]string{"openai/gpt-4o": `{"streaming":true}`, "anthropic/claude-haiku-4-5": `{"streaming":true}`} {
					_, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{
						Parent: project, Model: model, ModelArgsJson: args, Messages: []*modelv1.ChatMessage{chat.User("how are you?")},
						Config: &modelv1.GenerateConfig{MaxRetries: new(int32(0))}, RecordCall: asked.GetRecordCall(), RecordFailedCall: asked.GetRecordFailedCall(),
					})
					require.Error(t, err)
					var call *modelv1.ModelCall
					for _, detail := range status.Convert(err).Details() {
						if d, ok := detail.(*modelv1.ModelCall); ok {
							call = d
						}
					}
					require.NotNil(t, call, "%s: %v", model, err)
					assert.True(t, call.GetError())
					assert.Contains(t, call.GetRequestJson(), "how are you?")
					assert.Equal(t, tt.want, call.GetResponseJson(), model)
				}
			}
		})
	}
}

func TestARecordOfFailuresAloneHasNoAnswers(t *testing.T) {
	t.Parallel()
	g := start(t, func(*modelgw.Config, *modelgw.Deps) {})
	request := func(args string) *modelv1.GenerateRequest {
		return &modelv1.GenerateRequest{
			Parent: project, Model: "mockllm/model", ModelArgsJson: args, Messages: []*modelv1.ChatMessage{chat.User("how are you?")}, RecordFailedCall: true,
		}
	}
	answer, err := g.models.Generate(t.Context(), request(`{"outputs":["fine"]}`))
	require.NoError(t, err)
	assert.Nil(t, answer.GetCall())
	_, err = g.models.Generate(t.Context(), request(`{"outputs":[{"error":{"status":400,"message":"refused"}}]}`))
	require.Error(t, err)
	details := status.Convert(err).Details()
	at := slices.IndexFunc(details, func(d any) bool { _, ok := d.(*modelv1.ModelCall); return ok })
	require.GreaterOrEqual(t, at, 0)
	assert.JSONEq(t, `{"error":{"status":400,"message":"refused"}}`, details[at].(*modelv1.ModelCall).GetResponseJson())
}

// Attempts before an answer have their records too: the latest ones, within a bound.
func TestTheRecordsOfAttemptsBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := start(t, func(*modelgw.Config, *modelgw.Deps) {})
		const args = `{"outputs":[{"output":{"text":"fine","error":{"status":503,"message":"busy","times":4,"retry_after_s":0.01}}}]}`
		for name, tt := range map[string]struct {
			request *modelv1.GenerateRequest
			kept    []bool
		}{
			"failures": {&modelv1.GenerateRequest{RecordFailedCall: true}, []bool{false, true, true, true}},
			"all":      {&modelv1.GenerateRequest{RecordCall: true}, []bool{false, true, true, true}},
			"none":     {&modelv1.GenerateRequest{}, []bool{false, false, false, false}},
		} {
			r := tt.request
			r.Parent, r.Model, r.ModelArgsJson = project, "mockllm/model", args
			r.Messages = []*modelv1.ChatMessage{chat.User(strings.Repeat("how are you? ", 10_000))}
			answer, err := g.models.Generate(t.Context(), r)
			require.NoError(t, err, name)
			var kept []bool
			for _, failed := range answer.GetFailedAttempts() {
				call := failed.GetCall()
				if kept = append(kept, call != nil); call == nil {
					continue
				}
				assert.True(t, call.GetError())
				assert.JSONEq(t, `{"error":{"status":503,"message":"busy"}}`, call.GetResponseJson())
				assert.Contains(t, call.GetRequestJson(), "how are you?")
				assert.LessOrEqual(t, len(call.GetRequestJson()), 32<<10)
			}
			assert.Equal(t, tt.kept, kept, name)
		}
	})
}

// A call that the gateway itself cuts off has its record too: what was sent is as much wanted there.
func TestTheRecordOfACallThatIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := start(t, func(*modelgw.Config, *modelgw.Deps) {})
		never := new(int32(0))
		for name, tt := range map[string]struct {
			config  *modelv1.GenerateConfig
			timeout *durationpb.Duration
		}{
			"the attempt took too long": {config: &modelv1.GenerateConfig{AttemptTimeout: new(1.0), MaxRetries: never}},
			"nothing came":              {config: &modelv1.GenerateConfig{StreamIdleTimeout: new(1.0), MaxRetries: never}},
			"the retries took too long": {config: &modelv1.GenerateConfig{AttemptTimeout: new(5.0), Timeout: new(2.0)}},
			"the call took too long":    {timeout: durationpb.New(time.Second)},
		} {
			for _, wanted := range []bool{true, false} {
				_, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{
					Parent: project, Model: "mockllm/model", ModelArgsJson: `{"outputs":[{"output":{"text":"late","delay_s":3600}}]}`,
					Messages: []*modelv1.ChatMessage{chat.User("how are you?")}, Config: tt.config, Timeout: tt.timeout, RecordFailedCall: wanted,
				})
				require.Error(t, err, name)
				details := status.Convert(err).Details()
				at := slices.IndexFunc(details, func(d any) bool { _, ok := d.(*modelv1.ModelCall); return ok })
				require.Equal(t, wanted, at >= 0, "%s: %v", name, err)
				if wanted {
					call := details[at].(*modelv1.ModelCall)
					assert.True(t, call.GetError(), name)
					assert.Contains(t, call.GetRequestJson(), "how are you?", name)
					assert.Empty(t, call.GetResponseJson(), name)
				}
			}
		}
	})
}
