package dialect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralchat"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralconversations"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// A format that leaves out what takes the place of earlier messages would send the rest of the conversation alone.
func TestACompactedConversationIsReadByItsProviderAlone(t *testing.T) {
	t.Parallel()
	const byOpenAI, byAnthropic = `{"compaction_metadata":{"type":"openai_compact","encrypted_content":"x"}}`, `{"compaction_metadata":{"type":"anthropic_compact","content":"short"}}`
	reads := map[string]dialect.Codec{byOpenAI: openairesponses.Codec{}, byAnthropic: anthropic.Codec{}}
	for document, role := range map[string]modelv1.Role{byOpenAI: modelv1.Role_ROLE_USER, byAnthropic: modelv1.Role_ROLE_ASSISTANT} {
		part := &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: document}}}
		require.True(t, dialect.IsCompaction(part))
		for _, codec := range []dialect.Codec{openairesponses.Codec{}, anthropic.Codec{}, openaichat.Codec{}, gemini.Codec{}, bedrockconverse.Codec{}, mistralchat.Codec{}, mistralconversations.Codec{}} {
			_, err := codec.AppendRequest(nil, &dialect.Request{
				Model: "m", Messages: []*modelv1.ChatMessage{chat.User("q"), {Role: role, Content: chat.ListContent(part)}, chat.User("and")}, Config: &modelv1.GenerateConfig{},
			})
			if codec == reads[document] {
				require.NoError(t, err)
				continue
			}
			var unsupported *dialect.UnsupportedError
			assert.ErrorAs(t, err, &unsupported, "%s to %s", document, codec.Format().Name)
		}
	}
	other := &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: `{"a":1}`}}}
	assert.False(t, dialect.IsCompaction(other))
	assert.False(t, dialect.IsCompaction(chat.TextPart("q")))
}
