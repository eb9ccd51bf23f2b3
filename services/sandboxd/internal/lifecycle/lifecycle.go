// Package lifecycle is the life of sandboxes: it makes them through a driver, keeps their records, their leases and the
// connection to their guests, and collects what is over.
//
// A record is written before the driver is asked to make a box, and a box is removed before its record says so. So a
// crash at any point leaves either a record that the next process goes on with, or a box that it finds by its owner and
// has no record for.
package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/evalfleet/evalfleet/pkg/clockjump"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

// Config configures which sandboxes may be made, how many, and how long they live.
type Config struct {
	// Driver makes the sandboxes that name none: local or docker. Default `local`.
	Driver string `yaml:"driver" env:"EVALFLEET_SANDBOXD_DRIVER"`
	// MaxSandboxes bounds the sandboxes that live at once; more are refused with RetryInfo. Default 64.
	MaxSandboxes int `yaml:"max_sandboxes" env:"EVALFLEET_SANDBOXD_MAX_SANDBOXES"`
	// MaxCreating bounds the sandboxes that are made at once; more wait. Default twice the processors.
	MaxCreating int `yaml:"max_creating" env:"EVALFLEET_SANDBOXD_MAX_CREATING"`
	// AllowUnisolated makes sandboxes even if a part of the isolation is missing; the missing parts are reported.
	AllowUnisolated bool `yaml:"allow_unisolated" env:"EVALFLEET_SANDBOXD_ALLOW_UNISOLATED"`
	// CPUMillis bounds the processors of a sandbox that asks for no bound, in thousandths of a core. Default 2000;
	// never more than the machine has.
	CPUMillis int64 `yaml:"cpu_millis" env:"EVALFLEET_SANDBOXD_CPU_MILLIS"`
	// MaxOpenFiles bounds the open files of all processes of a sandbox together: its bound on processes times that on
	// open files of each. Default 0: a sixteenth of what the machine allows (fs.file-max), and at least 65,536.
	MaxOpenFiles int64 `yaml:"max_open_files" env:"EVALFLEET_SANDBOXD_MAX_OPEN_FILES"`
	// OrphanTimeout is how long a sandbox continues to run while this service is unreachable. Default 1h.
	OrphanTimeout time.Duration `yaml:"orphan_timeout" env:"EVALFLEET_SANDBOXD_ORPHAN_TIMEOUT"`
}

// SetDefaults fills in what is zero.
func (c *Config) SetDefaults() {
	c.Driver = cmp.Or(c.Driver, "local")
	c.MaxSandboxes = cmp.Or(c.MaxSandboxes, 64)
	c.MaxCreating = cmp.Or(c.MaxCreating, 2*runtime.NumCPU())
	c.CPUMillis = cmp.Or(c.CPUMillis, 2000)
	c.OrphanTimeout = cmp.Or(c.OrphanTimeout, time.Hour)
}

// Validate names every fault.
func (c *Config) Validate() error {
	var faults []error
	for _, bound := range []struct {
		key   string
		value int64
	}{
		{"max_sandboxes", int64(c.MaxSandboxes)},
		{"max_creating", int64(c.MaxCreating)},
		{"cpu_millis", c.CPUMillis},
		{"max_open_files", c.MaxOpenFiles},
		{"orphan_timeout", int64(c.OrphanTimeout)},
	} {
		if bound.value < 0 {
			faults = append(faults, errors.New(bound.key+": must not be negative"))
		}
	}
	return errors.Join(faults...)
}

// Deps are the dependencies of the package.
type Deps struct {
	// Drivers by name.
	Drivers map[string]driver.Driver
	Store   Store
	// Ledger keeps claims and results of CreateSandbox.
	Ledger effect.Ledger
	// Host identifies the machine on which this process makes its boxes. It outlives the process, and no two running
	// processes have the same one.
	Host string
	// Owner identifies this process in the ledger; Alive reports whether another one still runs (nil: none does).
	Owner string
	Alive func(ctx context.Context, owner string) (bool, error)
	// Lack returns the reason why no new sandbox may be made, such as a nearly full disk. Nil, or an empty result,
	// means that one may be made.
	Lack   func() string
	Logger *slog.Logger
}

// Sandboxes are all sandboxes of an installation, of which those of one host are acted on. It is safe for concurrent
// use.
type Sandboxes struct {
	cfg          Config
	drivers      map[string]driver.Driver
	gauges       map[string]*gauge // by driver
	store        Store
	effects      *effectrpc.Owner
	log          *slog.Logger
	lack         func() string
	installation string
	host         string
	creating     chan struct{} // a token for each that may be made at once
	clock        clockjump.Detector
	background   sync.WaitGroup
	// refused counts the sandboxes that could not be made since that was logged last.
	refused atomic.Int64
	seldom  rate.Sometimes

	mu   sync.Mutex
	live map[string]*entry // by id: those whose state is not over
	// settling is since when holders may come back who could not renew their leases before.
	settling time.Time
}

// entry is a sandbox that lives.
type entry struct {
	id     string
	client atomic.Pointer[client.Client] // set once, before Ready

	mu       sync.Mutex
	box      *Sandbox // replaced, never changed
	making   bool     // by this process
	removing chan struct{}

	busy     atomic.Int32 // calls that use it now
	lastUsed atomic.Int64 // Unix nanoseconds
	granted  atomic.Int64 // when this process granted the lease, in Unix nanoseconds; 0 if an earlier one did
}

// New loads the sandboxes that live. Run must be called for leases to end.
func New(ctx context.Context, cfg Config, deps Deps) (*Sandboxes, error) {
	if _, ok := deps.Drivers[cfg.Driver]; !ok {
		return nil, rpcerr.DriverNotFound(cfg.Driver, slices.Sorted(maps.Keys(deps.Drivers)))
	}
	s := &Sandboxes{
		cfg: cfg, drivers: deps.Drivers, store: deps.Store, log: deps.Logger, creating: make(chan struct{}, max(cfg.MaxCreating, 1)),
		lack: deps.Lack, host: deps.Host, settling: time.Now(), live: map[string]*entry{}, gauges: map[string]*gauge{},
		seldom: rate.Sometimes{Interval: logEvery},
	}
	for name, d := range deps.Drivers {
		s.gauges[name] = newGauge(d)
	}
	var err error
	s.effects, err = effectrpc.New(effectrpc.Config{
		Service: "sandboxd", Noun: "sandbox", Ledger: deps.Ledger, Owner: deps.Owner, Alive: deps.Alive, MaxReissues: maxReissues, Logger: deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	if s.installation, err = deps.Store.Installation(ctx); err != nil {
		return nil, fmt.Errorf("name this installation: %w", err)
	}
	boxes, err := deps.Store.Live(ctx, deps.Host)
	if err != nil {
		return nil, fmt.Errorf("load the sandboxes: %w", err)
	}
	for _, b := range boxes {
		e := &entry{id: b.ID, box: b}
		if b.State == Ready {
			e.client.Store(s.connect(b))
		}
		s.live[b.ID] = e
	}
	return s, nil
}

// owner returns the name by which drivers distinguish the boxes of this host from others.
func (s *Sandboxes) owner() string { return s.installation + "." + s.host }

// Close closes the connections to the guests and the drivers' sockets. Sandboxes continue to run under their leases.
func (s *Sandboxes) Close(ctx context.Context) error {
	err := s.effects.Drain(ctx)
	s.background.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.live {
		if c := e.client.Load(); c != nil {
			c.Close()
		}
	}
	for _, d := range s.drivers {
		err = errors.Join(err, d.Close())
	}
	return err
}

// Drivers gives the drivers by name.
func (s *Sandboxes) Drivers() map[string]driver.Driver { return s.drivers }

// DefaultDriver is the driver of sandboxes that name none.
func (s *Sandboxes) DefaultDriver() string { return s.cfg.Driver }

// Get returns a sandbox, also one that has ended.
func (s *Sandboxes) Get(ctx context.Context, project, id string) (*Sandbox, error) {
	s.mu.Lock()
	e := s.live[id]
	s.mu.Unlock()
	var b *Sandbox
	if e != nil {
		b = e.snapshot()
	} else {
		var err error
		if b, err = s.store.Load(ctx, id); errors.Is(err, ErrNotFound) {
			b = &Sandbox{}
		} else if err != nil {
			return nil, fmt.Errorf("load a sandbox: %w", err)
		}
	}
	if b.ID == "" || b.Project != project {
		return nil, rpcerr.ResourceNotFound(resource.Format(project, "sandboxes", id))
	}
	return b, nil
}

// List returns up to limit sandboxes of a project with those labels, newest first, after the given one (zero: from the
// newest). over includes those that have ended.
func (s *Sandboxes) List(ctx context.Context, project string, after *Sandbox, labels map[string]string, over bool, limit int) ([]*Sandbox, error) {
	var out []*Sandbox
	for {
		page, err := s.store.List(ctx, project, after.Created, after.ID, over, limit)
		if err != nil {
			return nil, fmt.Errorf("list sandboxes: %w", err)
		}
		for _, b := range page {
			if b.Has(labels) {
				if out = append(out, s.current(b)); len(out) == limit {
					return out, nil
				}
			}
		}
		if len(page) < limit {
			return out, nil
		}
		after = page[len(page)-1]
	}
}

// current is the record as this process knows it, with uses that are not written down.
func (s *Sandboxes) current(b *Sandbox) *Sandbox {
	s.mu.Lock()
	e := s.live[b.ID]
	s.mu.Unlock()
	if e == nil {
		return b
	}
	return e.snapshot()
}

// snapshot is the record with the lease as use has prolonged it.
func (e *entry) snapshot() *Sandbox {
	e.mu.Lock()
	b := e.box.clone()
	e.mu.Unlock()
	b.LeaseEnd = e.leaseEnd(b)
	return b
}

// leaseEnd is when the lease ends: use prolongs it, and a sandbox in use now has its whole lease ahead.
func (e *entry) leaseEnd(b *Sandbox) time.Time {
	used := time.Unix(0, e.lastUsed.Load())
	if e.busy.Load() > 0 {
		used = time.Now()
	}
	if end := used.Add(b.Lease); end.After(b.LeaseEnd) {
		return end
	}
	return b.LeaseEnd
}

// move takes an action on an entry: it writes the new record, then shows it. It is false where the action is not
// possible.
func (s *Sandboxes) move(ctx context.Context, e *entry, a Action, change func(*Sandbox)) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next, ok := e.box.State.Move(a)
	if !ok {
		return false, nil
	}
	b := e.box.clone()
	b.State, b.Changed = next, time.Now()
	b.Revision++
	if change != nil {
		change(b)
	}
	if err := s.put(ctx, e, b); err != nil {
		return false, fmt.Errorf("write the record of %s: %w", b.Name(), err)
	}
	return true, nil
}

// put writes a record, then shows it. While the store takes none, leases cannot be renewed, so they begin to settle
// anew. Where the store has another record than e, as when another host has taken the sandbox over, that one is shown.
// The caller holds e.mu.
func (s *Sandboxes) put(ctx context.Context, e *entry, b *Sandbox) error {
	err := s.store.Put(ctx, b)
	switch {
	case err == nil:
		e.box = b
	case errors.Is(err, ErrChanged):
		now, loadErr := s.store.Load(ctx, b.ID)
		if loadErr != nil {
			return errors.Join(err, loadErr)
		}
		if e.box = now; now.same(b) {
			return nil // An earlier attempt, which failed, is durable.
		}
		if now.Host != s.host {
			s.background.Go(func() { s.forget(e) }) // Others hold s.mu and take e.mu.
		}
	case rpcerr.StoreAway(err):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settling = time.Now()
	}
	return err
}

// forget drops an entry whose sandbox is over; its record is in the store.
func (s *Sandboxes) forget(e *entry) {
	s.mu.Lock()
	delete(s.live, e.id)
	s.mu.Unlock()
	if c := e.client.Load(); c != nil {
		c.Close()
	}
}
