package modelgw_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/redistest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

func withRedis(owner, address string) setup {
	return func(c *modelgw.Config, d *modelgw.Deps) {
		c.Redis.Addresses, d.Owner = []string{address}, owner
		c.Redis.SetDefaults()
	}
}

func cached(r *modelv1.GenerateRequest) *modelv1.GenerateRequest {
	r.Config = &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true}}
	return r
}

// What one replica was answered another has, and both show the limits of all; without Redis each answers by itself.
func TestReplicasShareResponsesAndLimits(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	one, two := start(t, withRedis("one/1", server.Socket())), start(t, withRedis("two/1", server.Socket()))
	answer, err := one.models.Generate(t.Context(), cached(ask("", "q")))
	require.NoError(t, err)
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, answer.GetCache())
	answer, err = two.models.Generate(t.Context(), cached(ask("", "q")))
	require.NoError(t, err)
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, answer.GetCache())
	assert.Empty(t, two.calls(t))
	entries, err := two.caches.ListCacheEntries(t.Context(), &modelv1.ListCacheEntriesRequest{Parent: project})
	require.NoError(t, err)
	require.Len(t, entries.GetEntries(), 1)
	assert.WithinDuration(t, time.Now().Add(7*24*time.Hour), entries.GetEntries()[0].GetExpireTime().AsTime(), time.Hour)

	pool := func(g *gateway) *modelv1.ConnectionPool {
		pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/-/-"})
		require.NoError(t, err)
		require.Len(t, pools.GetConnectionPools(), 1)
		return pools.GetConnectionPools()[0]
	}
	_, err = two.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: pool(two).GetName(), Max: 7}})
	require.NoError(t, err)
	assert.Equal(t, int32(7), pool(one).GetLimit())
	assert.Len(t, pool(one).GetHistory(), 1)

	server.Stop()
	_, err = two.models.Generate(t.Context(), cached(ask("", "q")))
	require.NoError(t, err)
	assert.Len(t, two.calls(t), 1)
	_, err = two.caches.ClearCache(t.Context(), &modelv1.ClearCacheRequest{Parent: project})
	require.ErrorContains(t, err, "redis, which has the response cache, does not answer")
	_, err = two.limits.UpdateConnectionPool(t.Context(), &modelv1.UpdateConnectionPoolRequest{ConnectionPool: &modelv1.ConnectionPool{Name: pool(two).GetName(), Max: 9}})
	require.ErrorContains(t, err, "the limit was not changed, since redis does not answer")
}

// Each option of the cache decides which calls share an answer, and for how long, in each store.
func TestTheOptionsOfTheCacheInEachStore(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	for name, g := range map[string]*gateway{"memory": start(t), "redis": start(t, withRedis("one/1", server.Socket()))} {
		t.Run(name, func(t *testing.T) {
			use := func(question string, epoch int32, policy *modelv1.CachePolicy) modelv1.CacheUse {
				t.Helper()
				r := on("s", 1, cached(ask("", question)))
				r.Attribution.Epoch, r.Config.Cache.Policy = epoch, policy
				answer, err := g.models.Generate(t.Context(), r)
				require.NoError(t, err)
				return answer.GetCache()
			}
			entries := func(expiredOnly bool) []*modelv1.CacheEntry {
				t.Helper()
				r := &modelv1.ListCacheEntriesRequest{Parent: project, ExpiredOnly: expiredOnly}
				list, err := g.caches.ListCacheEntries(t.Context(), r)
				require.NoError(t, err)
				return list.GetEntries()
			}
			const (
				none    = modelv1.CacheUse_CACHE_USE_UNSPECIFIED
				written = modelv1.CacheUse_CACHE_USE_WRITE
				found   = modelv1.CacheUse_CACHE_USE_READ
			)
			scoped := func(value string) *modelv1.CachePolicy {
				return &modelv1.CachePolicy{Scopes: map[string]string{"b": value, "a": "1"}}
			}
			for _, c := range []struct {
				what   string
				epoch  int32
				policy *modelv1.CachePolicy
				want   modelv1.CacheUse
			}{
				{"the first call", 1, nil, written},
				{"an equal one", 1, nil, found},
				{"the default, written out", 1, &modelv1.CachePolicy{Expiry: "1W", PerEpoch: new(true)}, found},
				{"the same time in another unit", 1, &modelv1.CachePolicy{Expiry: "7D"}, found},
				{"another time", 1, &modelv1.CachePolicy{Expiry: "1h"}, written},
				{"another epoch", 2, nil, written},
				{"for all epochs", 1, &modelv1.CachePolicy{PerEpoch: new(false)}, written},
				{"for all epochs, in another", 2, &modelv1.CachePolicy{PerEpoch: new(false)}, found},
				{"a scope", 1, scoped("2"), written},
				{"the same scope", 1, scoped("2"), found},
				{"another scope", 1, scoped("3"), written},
				{"for good", 1, &modelv1.CachePolicy{Expiry: "never"}, written},
				{"for good, again", 1, &modelv1.CachePolicy{Expiry: "never"}, found},
				{"less than no time", 1, &modelv1.CachePolicy{Expiry: "-1s"}, none},
			} {
				assert.Equal(t, c.want, use("q", c.epoch, c.policy), c.what)
			}
			forGood := 0
			for _, e := range entries(false) {
				if e.ExpireTime == nil {
					forGood++
				}
			}
			assert.Equal(t, 1, forGood)
			assert.Len(t, entries(false), 7)
			assert.Empty(t, entries(true))

			second := &modelv1.CachePolicy{Expiry: "1s"}
			assert.Equal(t, written, use("short", 1, second))
			expired := func() bool { return use("short", 1, second) == written }
			require.Eventually(t, expired, waittest.Bound, 10*time.Millisecond, "it expires")

			one := entries(false)[0]
			_, err := g.caches.ClearCache(t.Context(), &modelv1.ClearCacheRequest{Parent: project, Ids: []string{one.GetId()}})
			require.NoError(t, err)
			for _, e := range entries(false) {
				assert.NotEqual(t, one.GetId(), e.GetId())
			}
			_, err = g.caches.ClearCache(t.Context(), &modelv1.ClearCacheRequest{Parent: project})
			require.NoError(t, err)
			assert.Empty(t, entries(false))
			assert.Equal(t, written, use("q", 1, nil))
		})
	}
}

// safeBuffer is a log that several goroutines write.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestTheServiceStartsWithoutItsRedis(t *testing.T) {
	t.Parallel()
	var log safeBuffer
	nowhere := filepath.Join(t.TempDir(), "nowhere.sock")
	g := start(t, withRedis("one/1", nowhere), func(c *modelgw.Config, d *modelgw.Deps) {
		c.Redis.Password = config.NewSecret("hunter2")
		d.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	_, err := g.models.Generate(t.Context(), cached(ask("", "q")))
	require.NoError(t, err)
	assert.Contains(t, log.String(), "redis at "+nowhere+" does not answer")
	assert.Contains(t, log.String(), "check that it runs there")
	assert.NotContains(t, log.String(), "hunter2")
}

func TestARedisThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		redis modelgw.RedisConfig
		want  string
	}{
		{modelgw.RedisConfig{Addresses: []string{"redis"}}, `addresses: "redis" is no address; write host:port`},
		{modelgw.RedisConfig{CAFile: "ca.pem"}, "ca_file: needs tls"},
		{modelgw.RedisConfig{DB: -1}, "db: must not be negative"},
		{modelgw.RedisConfig{Addresses: []string{"a:1", "b:1"}, DB: 1}, "db: a cluster has only database 0"},
		{modelgw.RedisConfig{Replicas: -1}, "replicas: must not be negative"},
	} {
		assert.ErrorContains(t, c.redis.Validate(), c.want)
	}
	for _, address := range []string{"redis://:hunter2@redis:6379/0", "user:hunter2@redis:6379", "hunter2@redis:6379"} {
		err := (&modelgw.RedisConfig{Addresses: []string{"a:1", address}}).Validate()
		require.ErrorContains(t, err, "addresses: number 2 is a URL or has a user; write host:port")
		assert.NotContains(t, err.Error(), "hunter2")
	}
	whole := modelgw.RedisConfig{Addresses: []string{"[::1]:6379"}, TLS: true, CAFile: "ca.pem", DB: 2}
	whole.SetDefaults()
	require.NoError(t, whole.Validate())
	_, err := modelgw.New(modelgw.Config{Redis: modelgw.RedisConfig{Addresses: []string{"127.0.0.1:1"}, TLS: true, CAFile: filepath.Join(t.TempDir(), "none.pem")}},
		modelgw.Deps{Ledger: &memory.Ledger{}, Owner: "one", Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "redis.ca_file")
}
