package daemon

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
)

// Running are the services of a process that run, by name. The zero value has none. It is safe for concurrent use.
type Running struct {
	mu       sync.Mutex
	backends map[string]Backend
}

func (r *Running) add(name string, backend Backend) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backends == nil {
		r.backends = map[string]Backend{}
	}
	r.backends[name] = backend
}

// Reload applies a program to the running service of its name, if the program can be and the service runs.
func (r *Running) Reload(ctx context.Context, p Program) error {
	r.mu.Lock()
	backend, runs := r.backends[p.Name]
	r.mu.Unlock()
	if p.Reload == nil || !runs {
		return nil
	}
	return p.Reload(ctx, backend)
}

// Reloader applies changes of the configuration while a process runs. A configuration that cannot be read, is not valid
// or is refused is logged, and the process continues with the previous one.
type Reloader struct {
	// File is the file of the configuration.
	File string
	// Current is the configuration that the process runs with, a pointer to a struct.
	Current any
	// Load returns the configuration as it is now, in the type of Current.
	Load func(ctx context.Context) (any, error)
	// Apply applies a configuration to the services.
	Apply func(ctx context.Context, next any) error
	// Takes are the keys that Apply takes, with all below them; a change of another one needs a new process.
	Takes []string
	// Asked brings signals to reload; nil brings none.
	Asked <-chan os.Signal
	// Logger logs.
	Logger *slog.Logger

	// seen is the content at the last look, taken the one that was reloaded last.
	seen, taken [sha256.Size]byte
}

// pollEvery is how often the file is read. A change is reloaded at the second look that finds it, so that a file that
// is just being written is not. Its content is compared, and no notification is waited for: in a volume of Kubernetes a
// symbolic link is replaced, which leaves no event at the file.
const pollEvery = 5 * time.Second

// Hangups returns a channel that brings SIGHUP. Call it before the configuration is read, since a signal during the
// start would end the process; stop restores that effect. Without a file it does nothing, and the signal ends the
// process as usual.
func Hangups(file string) (asked <-chan os.Signal, stop func()) {
	if file == "" {
		return nil, func() {}
	}
	signals := make(chan os.Signal, 1) // A signal during a reload causes another one.
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// Watch reloads when it is asked, and when the content of the file changes, until the returned function is called,
// which waits for a reload in progress. Without a file it does nothing.
func (r *Reloader) Watch(ctx context.Context) (stop func()) {
	if r.File == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		poll := time.NewTicker(pollEvery)
		defer poll.Stop()
		r.Follow(ctx, poll.C)
	})
	return func() {
		cancel()
		watch.Wait()
	}
}

// Follow reloads what has changed since Current was read. Then it reloads when it is asked, and looks at the file at
// each tick, until ctx ends. A change is reloaded once two looks have found it.
func (r *Reloader) Follow(ctx context.Context, ticks <-chan time.Time) {
	r.look(ctx)
	r.reload(ctx, false)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Asked:
			r.look(ctx)
			r.reload(ctx, true)
		case <-ticks:
			if r.look(ctx) {
				r.reload(ctx, true)
			}
		}
	}
}

// look reports whether the file has another content than at the last reload, and the same as at the last look. A file
// that cannot be read has not: it may be about to be replaced.
func (r *Reloader) look(ctx context.Context) bool {
	content, err := regularfile.Read(ctx, r.File, bound.ConfigFileBytes)
	if err != nil {
		return false
	}
	before := r.seen
	r.seen = sha256.Sum256(content)
	return r.seen == before && r.seen != r.taken
}

// reload applies the configuration as it is now. Confirm makes it log also that nothing has changed.
func (r *Reloader) reload(ctx context.Context, confirm bool) {
	r.taken = r.seen
	next, err := r.Load(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.Logger.ErrorContext(ctx, "the configuration is not reloaded, and the previous one still holds", "file", r.File, "error", err)
		return
	}
	changed := config.Differences(r.Current, next)
	if len(changed) == 0 {
		if confirm {
			r.Logger.InfoContext(ctx, "the configuration is the same as before", "file", r.File)
		}
		return
	}
	if err := r.Apply(ctx, next); err != nil {
		r.Logger.ErrorContext(ctx, "the configuration is not reloaded, and the previous one still holds", "file", r.File, "error", err)
		return
	}
	r.Current = next
	if left := slices.DeleteFunc(changed, r.takes); len(left) > 0 {
		r.Logger.WarnContext(ctx, "changes of the configuration need a restart", "file", r.File, "keys", strings.Join(left, ", "))
	}
}

func (r *Reloader) takes(key string) bool {
	return slices.ContainsFunc(r.Takes, func(taken string) bool { return key == taken || strings.HasPrefix(key, taken+".") })
}

// Takes are the keys of a whole configuration that programs reload: those of each service are below its name.
func Takes(programs ...Program) []string {
	var keys []string
	for _, p := range programs {
		for _, key := range p.Reloads {
			keys = append(keys, p.Name+"."+key)
		}
	}
	return keys
}
