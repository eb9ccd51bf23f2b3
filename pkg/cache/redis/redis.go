// Package redis is a cache.Cache that several processes share through Redis.
//
// An entry is one key, which Redis removes when the entry expires. Its value begins with the time at which it expires,
// so that all readers see the writer's time. Entries are listed by a scan of the keys, which does not block the server.
//
// Redis may be away: then nothing is found and nothing is kept. Get and Put return the first failure alone. Until an
// answer comes, one caller at a time asks Redis again after a moment, so that other calls are not held up.
package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

const (
	// DefaultMaxValueBytes bounds a value.
	DefaultMaxValueBytes = 16 << 20
	// pause is how long Redis is not asked after a failure.
	pause = time.Second
	// batch is how many keys are looked at in one round trip of a scan or a deletion.
	batch = 1000
	// separator is between the group and the id in a key. Ids do not contain it: they are hashes.
	separator = "\x00"
)

// Cache is a cache in Redis.
type Cache struct {
	client *redisclient.Client
	most   int
	paused atomic.Pointer[time.Time] // until then Redis is not asked; nil after a success
}

var _ cache.Cache = (*Cache)(nil)

// New returns the cache of a client's prefix. A value of more than maxValueBytes is not kept; how much is kept together
// is the server's to bound (`maxmemory`).
func New(client *redisclient.Client, maxValueBytes int) *Cache {
	return &Cache{client: client, most: maxValueBytes}
}

// Get implements cache.Cache.
func (c *Cache) Get(ctx context.Context, key cache.Key) (value []byte, ok bool, err error) {
	if c.pausing() {
		return nil, false, nil
	}
	stored, err := c.client.Get(ctx, c.name(key)).Bytes()
	if errors.Is(err, redis.Nil) || isForeign(err) {
		err = nil // Nothing is stored, which is no entry.
	}
	if first := c.noted(ctx, err); err != nil {
		return nil, false, first
	}
	expires, value, ok := decode(stored)
	if !ok || (cache.Info{Expires: expires}).Expired(time.Now()) {
		return nil, false, nil
	}
	return value, true, nil
}

// Put implements cache.Cache.
func (c *Cache) Put(ctx context.Context, key cache.Key, value []byte, expires time.Time) error {
	if len(value) > c.most || c.pausing() {
		return cache.ErrNotKept
	}
	life := time.Duration(0) // never
	if !expires.IsZero() {
		life = max(time.Until(expires), 0) + time.Millisecond // An entry still counts at the very moment it expires.
	}
	err := c.client.Set(ctx, c.name(key), encode(expires, value), life).Err()
	if noted := c.noted(ctx, err); err == nil || noted != nil {
		return noted
	}
	return cache.ErrNotKept
}

// List implements cache.Cache. It looks at all keys first. Expired entries are not among them for long.
func (c *Cache) List(ctx context.Context, prefix string, after cache.Key) iter.Seq2[cache.Info, error] {
	return func(yield func(cache.Info, error) bool) {
		infos, err := c.following(ctx, prefix, after)
		if err != nil {
			yield(cache.Info{}, unavailable(err))
			return
		}
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (c *Cache) following(ctx context.Context, prefix string, after cache.Key) ([]cache.Info, error) {
	var infos []cache.Info
	err := c.scan(ctx, prefix, func(server redis.Cmdable, names []string) error {
		more, err := c.infos(ctx, server, names)
		infos = append(infos, slices.DeleteFunc(more, func(info cache.Info) bool { return info.Key.Compare(after) <= 0 })...)
		return err
	})
	slices.SortFunc(infos, func(a, b cache.Info) int { return a.Key.Compare(b.Key) })
	// A scan may find a key twice.
	return slices.CompactFunc(infos, func(a, b cache.Info) bool { return a.Key == b.Key }), err
}

// Delete implements cache.Cache.
func (c *Cache) Delete(ctx context.Context, keys ...cache.Key) (int, error) {
	removed := 0
	for some := range slices.Chunk(keys, batch) {
		pipe := c.client.Pipeline()
		results := make([]*redis.IntCmd, 0, len(some))
		for _, key := range some {
			results = append(results, pipe.Unlink(ctx, c.name(key)))
		}
		_, err := pipe.Exec(ctx)
		for _, r := range results {
			removed += int(r.Val())
		}
		if err != nil {
			return removed, unavailable(err)
		}
	}
	return removed, nil
}

// isForeign reports whether a key has a value of another type than ours, which is no entry.
func isForeign(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// scan calls found with the names of the keys whose group begins with prefix, some at a time, with a client of the
// server that has them.
func (c *Cache) scan(ctx context.Context, prefix string, found func(server redis.Cmdable, names []string) error) error {
	pattern := escape(c.client.Prefix+space+prefix) + "*"
	server := func(ctx context.Context, server redis.Cmdable) error {
		for cursor := uint64(0); ; {
			names, next, err := server.Scan(ctx, cursor, pattern, batch).Result()
			if err == nil && len(names) > 0 {
				err = found(server, names)
			}
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	}
	cluster, ok := c.client.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return server(ctx, c.client)
	}
	var one sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		one.Lock()
		defer one.Unlock()
		return server(ctx, master)
	})
}

// infos returns what is known of entries; those that have gone in the meantime are left out.
func (c *Cache) infos(ctx context.Context, server redis.Cmdable, names []string) ([]cache.Info, error) {
	pipe := server.Pipeline()
	heads, sizes := make([]*redis.StringCmd, len(names)), make([]*redis.IntCmd, len(names))
	for i, name := range names {
		heads[i], sizes[i] = pipe.GetRange(ctx, name, 0, headBytes-1), pipe.StrLen(ctx, name)
	}
	if _, err := pipe.Exec(ctx); err != nil && !isForeign(err) {
		return nil, err
	}
	var infos []cache.Info
	for i, name := range names {
		if err := heads[i].Err(); isForeign(err) {
			continue
		} else if err = cmp.Or(err, sizes[i].Err()); err != nil { // The first error of all may hide others.
			return nil, err
		}
		name = strings.TrimPrefix(name, c.client.Prefix+space)
		at := strings.LastIndex(name, separator) // A group may contain it: models are named freely.
		if at < 0 {
			continue
		}
		if expires, _, ok := decode([]byte(heads[i].Val())); ok {
			infos = append(infos, cache.Info{Key: cache.Key{Group: name[:at], ID: name[at+len(separator):]}, Size: sizes[i].Val() - headBytes, Expires: expires})
		}
	}
	return infos, nil
}

// space is the part of the keys that entries have, after the client's prefix.
const space = "cache:"

func (c *Cache) name(key cache.Key) string {
	return c.client.Prefix + space + key.Group + separator + key.ID
}

// escape makes a text a pattern that matches it alone.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "^", `\^`).Replace(text)
}

// headBytes is the length of the time before a value: milliseconds since 1970, or zero for never.
const headBytes = 8

func encode(expires time.Time, value []byte) []byte {
	var at int64
	if !expires.IsZero() {
		at = expires.UnixMilli()
	}
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, headBytes+len(value)), uint64(at)), value...)
}

func decode(stored []byte) (expires time.Time, value []byte, ok bool) {
	if len(stored) < headBytes {
		return time.Time{}, nil, false
	}
	if at := int64(binary.BigEndian.Uint64(stored)); at != 0 {
		expires = time.UnixMilli(at)
	}
	return expires, stored[headBytes:], true
}

// pausing reports whether Redis is not to be asked now. After a pause one caller gets false, and the others wait for
// its success or for the next pause to end.
func (c *Cache) pausing() bool {
	until := c.paused.Load()
	if until == nil {
		return false
	}
	now := time.Now()
	if now.Before(*until) {
		return true
	}
	next := now.Add(pause)
	return !c.paused.CompareAndSwap(until, &next)
}

// noted begins a pause if Redis did not answer, ends it if it did, and returns err, but nil for a failure that is not
// the first since Redis answered. A caller's own cancellation says nothing, and a command that is refused, as when the
// memory is full, is an answer.
func (c *Cache) noted(ctx context.Context, err error) error {
	switch {
	case err == nil, redis.HasErrorPrefix(err, "OOM"):
		if c.paused.Load() != nil {
			c.paused.Store(nil)
		}
	case ctx.Err() == nil:
		until := time.Now().Add(pause)
		if c.paused.Swap(&until) != nil {
			return nil
		}
	}
	return err
}

// unavailable is the error of an operator's call while Redis is away.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return rpcerr.StoreUnavailable("io", pause, "redis, which has the response cache, does not answer: %w; try again when it does", err)
}
