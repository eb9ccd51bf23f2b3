package modelgw_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// A vendor that repeats our key in a failure discloses it to no one: not to clients in either lane, not to callers, not
// to a record of the call.
func TestTheKeyOfAnAccountIsToldToNobody(t *testing.T) {
	t.Parallel()
	const key, secret = "sk-vendor-SECRETKEY-0123456789", "SECRETKEY"
	refused := fmt.Sprintf(`{"type":"error","error":{"type":"invalid_request_error","message":"the key %s is not for this"}}`, key)
	for name, answer := range map[string]http.HandlerFunc{
		"refused":      says(400, "application/json", refused),
		"unauthorized": says(401, "application/json", refused),
		"unavailable":  says(503, "text/html", "<p>"+key),
		"in a 200":     says(200, "application/json", refused),
		"no answer":    says(200, "text/html", "<p>"+key),
		"in a stream": says(200, "text/event-stream",
			`data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`+"\n\n"+
				"event: error\ndata: "+refused+"\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vendorWith(t, answer)
			w := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
				c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret(key), v.URL+"/v1"
				c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret(key), v.URL
				c.Mistral.APIKey, c.Mistral.BaseURL = config.NewSecret(key), v.URL
				c.Endpoints.MaxRetries = 0
			})
			for _, model := range []string{"openai/gpt-4o", "anthropic/claude-haiku-4-5", "mistral/mistral-large-latest"} {
				for _, path := range []string{chatPath, messagesPath} {
					for _, stream := range []bool{false, true} {
						body := fmt.Sprintf(`{"model":"%s","stream":%v,"max_tokens":10,"messages":[{"role":"user","content":"q"}]}`, model, stream)
						got := read(t, w.post(t, path, body))
						assert.NotContains(t, got, secret, "%s at %s", model, path)
						assert.NotEmpty(t, got)
					}
				}
				r := &modelv1.GenerateRequest{Parent: project, Model: model, Messages: []*modelv1.ChatMessage{chat.User("q")}, RecordCall: true, Config: &modelv1.GenerateConfig{MaxRetries: new(int32(0))}}
				response, err := w.models.Generate(t.Context(), r)
				assert.NotContains(t, fmt.Sprint(response, err, status.Convert(err).Details()), secret)
			}
			assert.NotEmpty(t, v.asked)
		})
	}
}

// A header of a call is no way to bring another key than the account's.
func TestAHeaderWithACredentialIsRefused(t *testing.T) {
	t.Parallel()
	g := start(t)
	for header, refused := range map[string]bool{
		"Authorization": true, "authorization": true, "Proxy-Authorization": true, "X-Api-Key": true, "api-key": true, "x-goog-api-key": true, "Cookie": true,
		"OpenAI-Organization": false, "anthropic-beta": false, "X-Authorization-Id": false,
	} {
		request := ask(`{"outputs": ["the answer"]}`, "q")
		request.Config = &modelv1.GenerateConfig{ExtraHeaders: &modelv1.HeaderMap{Values: map[string]string{header: "Bearer sk-mine"}}}
		_, err := g.models.Generate(t.Context(), request)
		assert.Equal(t, refused, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s: %v", header, err)
		if refused {
			assert.ErrorContains(t, err, "config.extra_headers.values")
			assert.ErrorContains(t, err, "carries a credential")
			assert.NotContains(t, err.Error(), "sk-mine")
		}
	}
}
