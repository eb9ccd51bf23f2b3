package modelgw_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// A model of xAI, which speaks gRPC, answers in the shapes of other vendors, whole and streamed.
func TestAModelOfXAIAnswersInOtherShapes(t *testing.T) {
	t.Parallel()
	answer := providertest.Answer{Text: "Both.", Function: "add", Arguments: `{"x":1.0}`}
	address := providertest.XAIServer(t, answer, answer, answer, answer)
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Grok.APIKey, c.Grok.BaseURL = config.NewSecret("vendor-key"), address
	})
	for path, tools := range map[string]string{
		"/v1/chat/completions": `[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`,
		messagesPath:           `[{"name":"add","input_schema":{"type":"object"}}]`,
	} {
		for _, more := range []string{"", `,"stream":true`} {
			said := read(t, g.post(t, path, `{"model":"grok/grok-4-fast","max_tokens":9,"tools":`+tools+`,"messages":[{"role":"user","content":"q"}]`+more+`}`))
			assert.Regexp(t, `"(finish_reason":"tool_calls|stop_reason":"tool_use)"`, said, path)
			assert.Contains(t, said, "call_1", path)
			assert.Contains(t, said, "add", path)
		}
	}
}
