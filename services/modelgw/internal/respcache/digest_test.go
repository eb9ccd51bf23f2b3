package respcache_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

// Answers that were kept before messages said who can read their seals are found by those that say it.
func TestWhoReadsASealIsNoPartOfADigest(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("")
	m.Content = chat.ListContent(chat.SealedPart("seal", nil))
	before, err := respcache.Digest(m)
	require.NoError(t, err)
	m.GetContent().GetList().GetParts()[0].GetReasoning().SealedBy = "anthropic/claude"
	after, err := respcache.Digest(m)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.Equal(t, "anthropic/claude", m.GetContent().GetList().GetParts()[0].GetReasoning().GetSealedBy(), "the message stays as it is")
	m.GetContent().GetList().GetParts()[0].GetReasoning().Reasoning = "another"
	other, err := respcache.Digest(m)
	require.NoError(t, err)
	assert.NotEqual(t, before, other)
}
