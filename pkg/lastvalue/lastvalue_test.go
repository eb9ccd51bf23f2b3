package lastvalue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// next returns a watcher's news as sorted words; a key whose value is gone has a minus.
func next(w *lastvalue.Watcher[string, int]) []string {
	var words []string
	for _, n := range w.Next() {
		if n.Gone {
			words = append(words, "-"+n.Key)
		} else {
			words = append(words, fmt.Sprintf("%s=%d", n.Key, n.Value))
		}
	}
	slices.Sort(words)
	return words
}

func all(string) bool { return true }

func TestAWatcherSeesWhatStandsAndWhatChanges(t *testing.T) {
	t.Parallel()
	var b lastvalue.Map[string, int]
	b.Post("a", 1)
	w := b.Watch(all)
	defer w.Close()
	waittest.For(t, w.C, "the watcher to be woken for what stands")
	assert.Equal(t, []string{"a=1"}, next(w))
	b.Post("b", 1)
	b.Post("b", 2)
	b.Clear("a")
	waittest.For(t, w.C, "the watcher to be woken for what changed")
	assert.Equal(t, []string{"-a", "b=2"}, next(w), "what was overtaken is not seen")
	assert.Empty(t, next(w))
	assert.Equal(t, map[string]int{"b": 2}, b.All(all))
}

func TestAWatcherHearsOnlyWhatItWants(t *testing.T) {
	t.Parallel()
	var b lastvalue.Map[string, int]
	w := b.Watch(func(key string) bool { return key == "mine" })
	defer w.Close()
	b.Post("other", 1)
	b.Post("mine", 1)
	assert.Equal(t, []string{"mine=1"}, next(w))
	assert.Equal(t, map[string]int{"other": 1}, b.All(func(key string) bool { return key == "other" }))
}

func TestWhatCameAndWentUnseenIsNoNews(t *testing.T) {
	t.Parallel()
	var b lastvalue.Map[string, int]
	w := b.Watch(all)
	defer w.Close()
	b.Post("a", 1)
	b.Clear("a")
	b.Clear("never")
	assert.Empty(t, next(w))
	b.Post("a", 2)
	assert.Equal(t, []string{"a=2"}, next(w))
	b.Clear("a")
	b.Post("a", 3)
	assert.Equal(t, []string{"a=3"}, next(w))
}

func TestAFollowerHearsNewsAndHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b lastvalue.Map[string, int]
		ctx, cancel := context.WithCancel(t.Context())
		var heard []string
		go func() {
			time.Sleep(time.Second)
			b.Post("a", 1)
			time.Sleep(lastvalue.Heartbeat + time.Second)
			cancel()
		}()
		err := b.Follow(ctx, all, func(n *lastvalue.Update[string, int]) error {
			if n == nil {
				heard = append(heard, "beat")
			} else {
				heard = append(heard, n.Key)
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, []string{"a", "beat"}, heard)
		broken := errors.New("broken")
		assert.Equal(t, broken, b.Follow(t.Context(), all, func(*lastvalue.Update[string, int]) error { return broken }))
	})
}

func TestManyMayPostAndWatch(t *testing.T) {
	t.Parallel()
	var b lastvalue.Map[string, int]
	var posting sync.WaitGroup
	for i := range 8 {
		posting.Go(func() {
			for n := range 100 {
				b.Post(fmt.Sprint(i), n)
			}
		})
		posting.Go(func() {
			w := b.Watch(all)
			defer w.Close()
			waittest.Hold(t, w.C)
			next(w)
		})
	}
	waittest.Return(t, posting.Wait, "every post and watch to return")
	assert.Len(t, b.All(all), 8)
}
