package enum_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// Each value has a word that gives it back, as its full name and both in any case do.
func TestAWordGivesItsValueBack(t *testing.T) {
	t.Parallel()
	d := agentv1.WaitReason(0).Descriptor()
	assert.Len(t, enum.Words(d), d.Values().Len()-1)
	for i := range d.Values().Len() {
		value := agentv1.WaitReason(d.Values().Get(i).Number())
		for _, written := range []string{enum.Word(value), value.String()} {
			got, ok := enum.Parse[agentv1.WaitReason](written)
			assert.True(t, ok, written)
			assert.Equal(t, value, got)
		}
	}
	assert.Equal(t, "capacity", enum.Word(agentv1.WaitReason_WAIT_REASON_CAPACITY))
	assert.Empty(t, enum.Word(agentv1.WaitReason_WAIT_REASON_UNSPECIFIED))
}

// A word that is none is refused, and a value of a later version is shown by its number.
func TestWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	_, ok := enum.Parse[agentv1.WaitReason]("aproval")
	assert.False(t, ok)
	assert.Equal(t, "99", enum.Word(agentv1.WaitReason(99)))
	got, ok := enum.Parse[agentv1.WaitReason]("Capacity")
	assert.True(t, ok)
	assert.Equal(t, agentv1.WaitReason_WAIT_REASON_CAPACITY, got)
}
