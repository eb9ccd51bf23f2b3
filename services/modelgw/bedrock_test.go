package modelgw_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// A model on Bedrock answers in the shapes of other vendors, whole and as a stream.
func TestAModelOnBedrockAnswersInOtherShapes(t *testing.T) {
	t.Parallel()
	answer := providertest.Answer{Text: "Let me see.", Function: "add", Arguments: `{"x":1.5}`}
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Bedrock.APIKey, c.Bedrock.BaseURL = config.NewSecret("bedrock-api-key"), providertest.ConverseServer(t, answer, answer, answer, answer)
	})
	for path, tools := range map[string]string{
		"/v1/chat/completions": `[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`,
		messagesPath:           `[{"name":"add","input_schema":{"type":"object"}}]`,
	} {
		for _, stream := range []string{"false", "true"} {
			said := read(t, g.post(t, path, `{"model":"bedrock/amazon.nova-2-lite-v1:0","max_tokens":9,"stream":`+stream+`,"tools":`+tools+`,"messages":[{"role":"user","content":"q"}]}`))
			assert.Regexp(t, `"(finish_reason":"tool_calls|stop_reason":"tool_use)"`, said)
			assert.Contains(t, said, "tooluse_1")
		}
	}
}
