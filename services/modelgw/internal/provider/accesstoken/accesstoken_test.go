package accesstoken_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
)

// counted is a source of tokens `1`, `2` and so on with a life, each of which takes a second to fetch.
func counted(life time.Duration) (*accesstoken.Source, *atomic.Int32) {
	var fetched atomic.Int32
	return accesstoken.New(func(context.Context) (accesstoken.Token, error) {
		n := fetched.Add(1)
		time.Sleep(time.Second)
		return accesstoken.Token{Value: config.NewSecret(strconv.Itoa(int(n))), Expires: time.Now().Add(life)}, nil
	}), &fetched
}

func valueOf(t *testing.T, s *accesstoken.Source) string {
	t.Helper()
	token, err := s.Token(t.Context())
	require.NoError(t, err)
	return token.Value.Reveal()
}

func TestConcurrentCallersShareOneFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, fetched := counted(time.Hour)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { assert.Equal(t, "1", valueOf(t, s)) })
		}
		all.Wait()
		assert.Equal(t, "1", valueOf(t, s))
		assert.Equal(t, int32(1), fetched.Load())
	})
}

// Before a token ends the next one is fetched, and no caller waits for it.
func TestATokenIsRefreshedBeforeItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, fetched := counted(time.Hour)
		assert.Equal(t, "1", valueOf(t, s))
		time.Sleep(56 * time.Minute)
		start := time.Now()
		assert.Equal(t, "1", valueOf(t, s))
		assert.Zero(t, time.Since(start), "the old one is sent meanwhile")
		time.Sleep(2 * time.Second)
		assert.Equal(t, "2", valueOf(t, s))
		time.Sleep(2 * time.Hour)
		assert.Equal(t, "3", valueOf(t, s), "one that has ended is not sent")
		assert.Equal(t, int32(3), fetched.Load())
	})
}

// A source whose tokens live shortly is not asked with every call.
func TestAShortLifeCausesNoFloodOfFetches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, fetched := counted(4 * time.Minute)
		for range 100 {
			valueOf(t, s)
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, int32(1), fetched.Load())
	})
}

func TestAFailedFetchIsTriedAgainByTheNextCall(t *testing.T) {
	t.Parallel()
	failure := errors.New("not now")
	fails := true
	s := accesstoken.New(func(context.Context) (accesstoken.Token, error) {
		if fails {
			return accesstoken.Token{}, failure
		}
		return accesstoken.Token{Value: config.NewSecret("t")}, nil
	})
	_, err := s.Token(t.Context())
	require.ErrorIs(t, err, failure)
	fails = false
	assert.Equal(t, "t", valueOf(t, s))
}

// A caller that leaves does not end the fetch for the others.
func TestACallerThatLeavesEndsItsWaitAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, fetched := counted(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := s.Token(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		cancel()
		assert.Equal(t, "1", valueOf(t, s))
		all.Wait()
		assert.Equal(t, int32(1), fetched.Load())
	})
}

func TestARefusedTokenIsFetchedAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := counted(time.Hour)
		assert.Equal(t, "1", valueOf(t, s))
		s.Forget(config.NewSecret("another"))
		assert.Equal(t, "1", valueOf(t, s), "the refused one was replaced before")
		s.Forget(config.NewSecret("1"))
		assert.Equal(t, "2", valueOf(t, s))
	})
}
