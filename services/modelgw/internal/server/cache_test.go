package server_test

import (
	"context"
	"iter"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/cache"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/server"
)

const parent = "projects/p"

// filled has answers of models, ten bytes each: the named ones expire after an hour, the others never, and another
// project has answers too.
func filled(t *testing.T, store cache.Cache, models ...string) {
	t.Helper()
	put := func(project, model, id string, expires time.Time) {
		require.NoError(t, store.Put(t.Context(), cache.Key{Group: respcache.Group(project, model), ID: id}, make([]byte, 10), expires))
	}
	for i, model := range models {
		put("p", model, "short"+strconv.Itoa(i), time.Now().Add(time.Hour))
		put("p", model, "long"+strconv.Itoa(i), time.Time{})
	}
	put("other", "openai/gpt", "foreign", time.Now().Add(time.Hour))
}

func ids(entries []*modelv1.CacheEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.GetId())
	}
	return all
}

// A size is asked for parts of models' names; what has nothing is left out.
func TestCacheSizeOfModels(t *testing.T) {
	t.Parallel()
	store := cache.NewMemory(1 << 20)
	filled(t, store, "openai/gpt", "mockllm/model")
	s := server.New(server.Deps{Cache: store})
	for want, models := range map[int][]string{2: nil, 1: {"openai"}, 0: {"nothing"}} {
		size, err := s.GetCacheSize(t.Context(), &modelv1.GetCacheSizeRequest{Parent: parent, Models: models})
		require.NoError(t, err)
		assert.Len(t, size.GetBytes(), want, models)
	}
	size, err := s.GetCacheSize(t.Context(), &modelv1.GetCacheSizeRequest{Parent: parent, Models: []string{"gpt"}})
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{"openai/gpt": 20}, size.GetBytes())
}

// meter counts the entries that are read for lists.
type meter struct {
	cache.Cache
	read int
}

func (m *meter) List(ctx context.Context, prefix string, after cache.Key) iter.Seq2[cache.Info, error] {
	return func(yield func(cache.Info, error) bool) {
		for info, err := range m.Cache.List(ctx, prefix, after) {
			m.read++
			if !yield(info, err) {
				return
			}
		}
	}
}

// Pages have all entries once, whatever models are called, and a page reads no more than its entries and the next one.
func TestPagesOfTheCache(t *testing.T) {
	t.Parallel()
	models := []string{"openai/gpt", "openai/gpt !", "openai/gpt-5", "openai/gpt 4 o", "openai/GPT"}
	store := &meter{Cache: cache.NewMemory(1 << 20)}
	filled(t, store, models...)
	s := server.New(server.Deps{Cache: store})
	for name, tt := range map[string]struct {
		models []string
		size   int32
		want   int
	}{
		"all":           {nil, 1, 10},
		"three each":    {nil, 3, 10},
		"as many":       {nil, 10, 10},
		"of a model":    {models[1:2], 1, 2},
		"of no model":   {[]string{"openai"}, 1, 0},
		"of all models": {models, 4, 10},
	} {
		r := &modelv1.ListCacheEntriesRequest{Parent: parent, Models: tt.models, PageSize: tt.size}
		found := map[string]bool{}
		for pages := 1; ; pages++ {
			store.read = 0
			page, err := s.ListCacheEntries(t.Context(), r)
			require.NoError(t, err)
			for _, e := range page.GetEntries() {
				found[e.GetModel()+e.GetId()] = true
			}
			if len(tt.models) != 1 {
				assert.LessOrEqual(t, store.read, int(tt.size)+1, name)
			}
			if r.PageToken = page.GetNextPageToken(); r.GetPageToken() == "" {
				assert.Equal(t, max(1, (tt.want+int(tt.size)-1)/int(tt.size)), pages, name)
				break
			}
			assert.Len(t, page.GetEntries(), int(tt.size), name)
		}
		assert.Len(t, found, tt.want, name)
	}
	first, err := resource.PageOf(&modelv1.ListCacheEntriesRequest{Parent: parent})
	require.NoError(t, err)
	_, err = s.ListCacheEntries(t.Context(), &modelv1.ListCacheEntriesRequest{Parent: parent, PageToken: first.Token("nothing")})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR), "%v", err)
}

// What has expired can be listed and cleared, of models or by id; what lives stays, though its id is named.
func TestExpiredEntriesOfTheCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cache.NewMemory(1 << 20)
		filled(t, store, "openai/gpt", "mockllm/model")
		s := server.New(server.Deps{Cache: store})
		expired := func(models ...string) []string {
			page, err := s.ListCacheEntries(t.Context(), &modelv1.ListCacheEntriesRequest{Parent: parent, ExpiredOnly: true, Models: models})
			require.NoError(t, err)
			return ids(page.GetEntries())
		}
		remove := func(r *modelv1.ClearCacheRequest) int64 {
			r.Parent = parent
			cleared, err := s.ClearCache(t.Context(), r)
			require.NoError(t, err)
			return cleared.GetRemoved()
		}
		assert.Empty(t, expired())
		time.Sleep(2 * time.Hour)
		assert.ElementsMatch(t, []string{"short0", "short1"}, expired())
		assert.Equal(t, []string{"short0"}, expired("openai/gpt"), "a model is named exactly")
		assert.Empty(t, expired("openai"))
		sizes, err := s.GetCacheSize(t.Context(), &modelv1.GetCacheSizeRequest{Parent: parent})
		require.NoError(t, err)
		assert.Equal(t, map[string]int64{"openai/gpt": 2, "mockllm/model": 2}, sizes.GetEntries())
		assert.Equal(t, map[string]int64{"openai/gpt": 1, "mockllm/model": 1}, sizes.GetExpiredEntries())

		assert.EqualValues(t, 1, remove(&modelv1.ClearCacheRequest{ExpiredOnly: true, Ids: []string{"short0", "long0"}}))
		assert.Equal(t, []string{"short1"}, expired())
		assert.EqualValues(t, 1, remove(&modelv1.ClearCacheRequest{ExpiredOnly: true}))
		left, err := s.ListCacheEntries(t.Context(), &modelv1.ListCacheEntriesRequest{Parent: parent})
		require.NoError(t, err)
		assert.ElementsMatch(t, []string{"long0", "long1"}, ids(left.GetEntries()))
	})
}
