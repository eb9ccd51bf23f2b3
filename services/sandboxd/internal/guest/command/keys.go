package command

import (
	"bytes"
	"context"
	"maps"
	"slices"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
)

// claim finds the command of a key or makes one; fresh reports that the caller must start it.
func (r *Runner) claim(key string, hash []byte, spec *sandboxv1.ExecSpec) (c *Command, fresh bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.byKey[key]
	switch {
	case known && c == nil:
		return nil, false, fault.KeyCancelled(key)
	case known && spec != nil && !bytes.Equal(hash, c.hash):
		return nil, false, fault.KeyReused(key)
	case known:
		return c, false, nil
	case spec == nil:
		return nil, false, fault.KeyUnknown(key)
	case len(r.byKey) >= keptResults:
		return nil, false, fault.TooManyResults(keptResults)
	}
	c = r.create(key, hash, spec)
	r.byKey[key] = c
	return c, true, nil
}

// Write writes to the standard input of the command of that key, once it has begun, and returns the number of bytes
// accepted in total.
func (r *Runner) Write(key string, offset int64, data []byte, eof bool) (int64, error) {
	r.mu.Lock()
	c := r.byKey[key]
	r.mu.Unlock()
	if c == nil {
		return 0, fault.KeyUnknown(key)
	}
	<-c.begun
	return c.input.write(offset, data, eof)
}

// Kill ends the command of that key with all processes that it started, and waits for their end. An unknown key is
// remembered: its command will never begin. done reports that the command had ended before.
func (r *Runner) Kill(ctx context.Context, key string) (done bool, err error) {
	r.mu.Lock()
	c, known := r.byKey[key]
	if !known {
		r.byKey[key] = nil
	}
	r.mu.Unlock()
	if c == nil {
		return false, nil
	}
	if !c.kill(cancelled) {
		return true, nil
	}
	select {
	case <-c.done:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Release forgets the results of those keys; keys that are unknown or whose command still runs are ignored.
func (r *Runner) Release(keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		c, known := r.byKey[key]
		if c != nil && !c.over() {
			continue
		}
		if known {
			delete(r.byKey, key)
		}
		if i := slices.Index(r.order, c); c != nil && i >= 0 {
			r.order = slices.Delete(r.order, i, i+1)
			c.drop()
		}
	}
}

// Keys lists the keys that are known, sorted.
func (r *Runner) Keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.byKey))
}

// keep makes a command that has ended one of those that lose their output when there is no room.
func (r *Runner) keep(c *Command) {
	<-c.done
	c.stdout.Settle()
	c.stderr.Settle()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey[c.key] == c {
		r.order = append(r.order, c)
	} else {
		c.drop() // released in between
	}
}

// dropOldest drops the output of the oldest ended command that has any and that no reader holds; it returns false if
// there is none.
func (r *Runner) dropOldest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, old := range r.order {
		if (old.stdout.Kept() > 0 || old.stderr.Kept() > 0) && !old.stdout.Held() && !old.stderr.Held() {
			old.drop()
			return true
		}
	}
	return false
}

func (c *Command) drop() {
	c.stdout.Drop()
	c.stderr.Drop()
}

func (c *Command) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
