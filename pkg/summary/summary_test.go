package summary_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/summary"
)

func TestAMessageWithASummaryIsKnownAsOne(t *testing.T) {
	t.Parallel()
	m := summary.Message("50 % is done")
	assert.Equal(t, modelv1.Role_ROLE_USER, m.GetRole())
	assert.Contains(t, chat.Text(m), "50 % is done")
	assert.True(t, summary.Is(m))
	plain := chat.User("50 % is done")
	for _, metadata := range []string{"", `{"other":1}`, `[`, `"summary"`} {
		plain.MetadataJson = metadata
		assert.False(t, summary.Is(plain), metadata)
	}
}
