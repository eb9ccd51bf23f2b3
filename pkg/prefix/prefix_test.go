package prefix_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/prefix"
)

func hashOf(t *testing.T, messages ...*modelv1.ChatMessage) prefix.Hash {
	t.Helper()
	var h prefix.Hash
	for _, m := range messages {
		d, _, err := prefix.DigestOf(m)
		require.NoError(t, err)
		h = h.Next(d)
	}
	return h
}

func TestAHashIsOverEveryMessageAndTheirOrder(t *testing.T) {
	t.Parallel()
	a, b := chat.System("a"), chat.System("b")
	all := map[prefix.Hash]bool{{}: true}
	for _, messages := range [][]*modelv1.ChatMessage{{a}, {b}, {a, b}, {b, a}, {a, a}, {a, b, b}} {
		h := hashOf(t, messages...)
		assert.False(t, all[h], "%v", messages)
		all[h] = true
		assert.Equal(t, h, hashOf(t, messages...))
	}
}

func TestAHashIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	h := hashOf(t, chat.System("a"))
	again, ok := prefix.Parse(h.String())
	assert.True(t, ok)
	assert.Equal(t, h, again)
	for _, text := range []string{"", "1-", h.String() + "0", h.String()[:len(h.String())-1] + "g", "2" + h.String()[1:], h.String()[2:]} {
		_, ok := prefix.Parse(text)
		assert.False(t, ok, text)
	}
}

func TestTextThatCannotBeSentHasNoDigest(t *testing.T) {
	t.Parallel()
	_, _, err := prefix.DigestOf(chat.System("\xff"))
	assert.Error(t, err)
}
