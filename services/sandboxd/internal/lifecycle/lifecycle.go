// Package lifecycle is the life of sandboxes: it makes them through a driver, keeps their records, their leases and the
// connection to their guests, and collects what is over.
//
// A record is written before the driver is asked to make a box, and a box is removed before its record says so. So a
// crash at any point leaves either a record that the next process goes on with, or a box that it finds by its owner and
// has no record for.
package lifecycle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/standstill"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/client"
)

// Config sets the bounds of sandboxes.
type Config struct {
	// DefaultDriver makes the sandboxes that name none.
	DefaultDriver string
	// MaxSandboxes bounds the sandboxes that live at once.
	MaxSandboxes int
	// MaxCreating bounds the sandboxes that are made at once; more wait.
	MaxCreating int
	// AllowUnisolated lets sandboxes be made where a part of the isolation is missing.
	AllowUnisolated bool
	// CPUMillis bounds the processors of sandboxes that ask for no bound, in thousandths of a core. Zero leaves them
	// unbounded.
	CPUMillis int64
	// MaxOpenFiles bounds the open files of all processes of a sandbox together. Zero is the machine's share, see
	// machineOpenFiles.
	MaxOpenFiles int64
	// OrphanTimeout is how long a sandbox lives without any process of ours.
	OrphanTimeout time.Duration
}

// Deps are what the program hands in.
type Deps struct {
	// Drivers by name.
	Drivers map[string]driver.Driver
	Store   Store
	// Ledger keeps claims and results of CreateSandbox.
	Ledger effect.Ledger
	// Owner names this process in the ledger; Alive tells whether another one still runs (nil: none does).
	Owner string
	Alive func(owner string) bool
	// Lack returns what keeps a new sandbox from being made, such as a disk that is nearly full; nil or an empty answer
	// for nothing.
	Lack   func() string
	Logger *slog.Logger
}

// Sandboxes are all sandboxes of an installation. Methods may be called concurrently.
type Sandboxes struct {
	cfg          Config
	drivers      map[string]driver.Driver
	gauges       map[string]*gauge // by driver
	store        Store
	effects      *effectrpc.Owner
	log          *slog.Logger
	lack         func() string
	installation string
	creating     chan struct{} // a token for each that may be made at once
	clock        standstill.Detector
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
}

// New loads the sandboxes that live. Run must be called for leases to end.
func New(ctx context.Context, cfg Config, deps Deps) (*Sandboxes, error) {
	if _, ok := deps.Drivers[cfg.DefaultDriver]; !ok {
		return nil, rpcerr.DriverNotFound(cfg.DefaultDriver, slices.Sorted(maps.Keys(deps.Drivers)))
	}
	s := &Sandboxes{
		cfg: cfg, drivers: deps.Drivers, store: deps.Store, log: deps.Logger, creating: make(chan struct{}, max(cfg.MaxCreating, 1)),
		lack: deps.Lack, settling: time.Now(), live: map[string]*entry{}, gauges: map[string]*gauge{},
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
	boxes, err := deps.Store.Live(ctx)
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

// Close lets go of the guests and of the drivers' sockets. Sandboxes live on under their leases.
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
func (s *Sandboxes) DefaultDriver() string { return s.cfg.DefaultDriver }

// Get gives a sandbox, also one that is over.
func (s *Sandboxes) Get(ctx context.Context, project, id string) (*Sandbox, error) {
	s.mu.Lock()
	e := s.live[id]
	s.mu.Unlock()
	var b *Sandbox
	if e != nil {
		b = e.snapshot()
	} else {
		var err error
		if b, err = s.store.Load(ctx, id); errors.Is(err, sql.ErrNoRows) {
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

// List gives up to limit sandboxes of a project with those labels, newest first, after the given one (zero: from the
// newest). Over gives those that are over too.
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
	if err := s.put(ctx, b); err != nil {
		return false, fmt.Errorf("write the record of %s: %w", b.Name(), err)
	}
	e.box = b
	return true, nil
}

// put writes a record. While the store takes none, leases cannot be renewed, so they begin to settle anew.
func (s *Sandboxes) put(ctx context.Context, b *Sandbox) error {
	err := s.store.Put(ctx, b)
	if rpcerr.StoreAway(err) {
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
