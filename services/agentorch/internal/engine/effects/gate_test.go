package effects

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// A pending effect that ends before its beginning has returned gives its place back all the same.
func TestAPlaceIsGivenBackHoweverEarly(t *testing.T) {
	t.Parallel()
	g := gate{limit: 2}
	started := 0
	for range 50 {
		var own *ticket
		own = g.ticket("a/b", func() {
			started++
			own.leave() // The asking ends within its start.
		})
		require.True(t, own.enter())
	}
	assert.Equal(t, 50, started)
	assert.Empty(t, g.queues, "no place is taken")
}

func TestATicketThatLeftBeforeItCameIsNeverLetIn(t *testing.T) {
	t.Parallel()
	g := gate{limit: 1}
	left := g.ticket("a/b", func() { t.Error("it had left") })
	left.leave()
	assert.False(t, left.enter())
	first, second := g.ticket("a/b", func() {}), make(chan struct{})
	require.True(t, first.enter())
	gone := g.ticket("a/b", func() { t.Error("it had left the queue") })
	assert.False(t, gone.enter())
	next := g.ticket("a/b", func() { close(second) })
	assert.False(t, next.enter())
	gone.leave()
	first.leave()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
	defer cancel()
	select {
	case <-second:
	case <-ctx.Done():
		t.Fatal("the next in the queue was not let in")
	}
	next.leave()
	assert.Empty(t, g.queues)
}
