// Package cache stores bytes under a key until they expire or room is needed. Their content is opaque.
//
// Cache is the port, Memory the implementation for one process, cachetest the suite that all pass.
package cache

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"
)

// Key names an entry: the group it is listed and cleared with, and its place in it.
type Key struct {
	Group string
	ID    string
}

// Compare is the order of keys: by group, then by id.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Group, other.Group), cmp.Compare(k.ID, other.ID))
}

// Info is the metadata of an entry.
type Info struct {
	Key Key
	// Size is that of the value in bytes.
	Size int64
	// Expires is when the entry expires; zero is never. An entry may be listed after that, until it is looked up or
	// removed.
	Expires time.Time
}

// Expired reports whether the entry has ended. An entry still counts at the very moment it expires.
func (i Info) Expired(now time.Time) bool { return !i.Expires.IsZero() && now.After(i.Expires) }

// ErrNotKept is the error of Put for a value that has no room, or while the cache takes none. It is no failure of the
// cache.
var ErrNotKept = errors.New("the cache does not keep the value")

// Cache stores bytes. All methods are safe for concurrent use. A stored value may be gone at any time; one that is
// found is complete. Values must not be modified after Put or by the callers of Get.
type Cache interface {
	// Get returns the value under key, and whether there is an unexpired one.
	Get(ctx context.Context, key Key) (value []byte, ok bool, err error)
	// Put stores a value until it expires; the zero time is never. It replaces a present value. It may fail with
	// ErrNotKept.
	Put(ctx context.Context, key Key, value []byte, expires time.Time) error
	// List yields the entries whose group begins with prefix and whose keys follow after, in the order of keys, expired
	// ones included. The zero key precedes all. A failure is yielded as the last pair. The cache must not be called
	// during the iteration.
	List(ctx context.Context, prefix string, after Key) iter.Seq2[Info, error]
	// Delete removes entries and returns how many there were.
	Delete(ctx context.Context, keys ...Key) (int, error)
}
