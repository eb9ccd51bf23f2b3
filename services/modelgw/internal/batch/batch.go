// Package batch sends model calls through the batch APIs of providers, and keeps them over a restart.
//
// A call does not know that it travels in a batch: its provider encodes the request and reads the answer as usual, and
// only the transport differs. A [Ride] is that transport: it makes a rider of each request, which the [Store] keeps,
// and returns the rider's answer once there is one. A call that is repeated under its key after a crash makes the same
// request, and so finds its rider again.
//
//	call ── provider ── Ride.Carry ──▶ rider: waiting ─▶ sent ─▶ answered ──▶ the answer of the request
//	                                             │        ▲
//	Batcher ──────────────── assembles batch: intended ─▶ in flight ─▶ ended
//	                                             │ Submit, or Find after a crash
//	                                             ▼
//	                                       provider.BatchAPI
//
// A batch is in the store before the vendor sees it, under an id that the vendor is sent. As long as it is unknown
// whether the vendor took it, the [Batcher] asks before it sends it again, so that no rider travels twice.
package batch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// The schedule of a batch where a call sets none: spec/model.md §2.2.
const (
	defaultSize        = chat.DefaultBatchSize
	defaultDelay       = 15 * time.Second
	defaultTick        = 15 * time.Second
	defaultMaxBatches  = 50
	defaultMaxFailures = 1000
)

const (
	// polledAtOnce bounds the batches of a group that are looked at in parallel.
	polledAtOnce = 10
	// byteShare is the part of a provider's bound that the bodies of a batch may take, in percent: the rest is for what
	// each line has around its body.
	byteShare = 95
	// settledAtOnce and settledBytes bound the results that one write stores.
	settledAtOnce = 100
	settledBytes  = 8 << 20
	// lookEvery is how often a process looks for groups of other processes, and whether it is the one to look after
	// them.
	lookEvery = time.Second
	// callTimeout bounds one request to a vendor, and moveTimeout those that move a whole batch.
	callTimeout = time.Minute
	moveTimeout = time.Hour
	// listed bounds the batches, the newest ones, that are known not to be one that is looked for.
	listed = 1000
	// expireEvery is how often old riders and batches are deleted.
	expireEvery = time.Hour
	// reviewEvery is how often a process reviews which calls wait: another process may have settled their riders.
	reviewEvery = 15 * time.Second
)

// Deps are the dependencies of a [Batcher]. All but Alive and Changed are required.
type Deps struct {
	Store Store
	// Owner names this process in the store, from its start to its end.
	Owner string
	// Alive reports whether another owner still runs; nil if this process has the store to itself.
	Alive func(ctx context.Context, owner string) (bool, error)
	// Open opens a model.
	Open func(provider.Ref) (*provider.Model, error)
	// Changed is called with a note when a call with a key waits for a batch, and with nil when it does no more. It
	// must not block.
	Changed func(key effect.Key, note *effectv1.Note)
	Logger  *slog.Logger
}

// Batcher assembles batches, sends them and distributes their results. It is safe for concurrent use.
type Batcher struct {
	deps    Deps
	stopped chan struct{} // closed by Stop
	stop    sync.Once

	mu      sync.Mutex
	leads   bool
	life    context.Context    //nolint:containedctx // of Run while this process leads; nil otherwise
	resign  context.CancelFunc // ends life
	drivers map[string]*driver // by group
	working sync.WaitGroup
	waiting map[int64][]chan struct{} // for riders
	noted   map[effect.Key]struct{}   // calls that are shown to wait
}

// New returns a batcher. Nothing is sent before Run.
func New(deps Deps) *Batcher {
	if deps.Alive == nil {
		deps.Alive = func(context.Context, string) (bool, error) { return false, nil }
	}
	if deps.Changed == nil {
		deps.Changed = func(effect.Key, *effectv1.Note) {}
	}
	return &Batcher{deps: deps, stopped: make(chan struct{}), drivers: map[string]*driver{}, waiting: map[int64][]chan struct{}{}, noted: map[effect.Key]struct{}{}}
}

// Run sends and looks after batches until ctx ends, those of earlier processes included. Batches in flight stay at
// their vendors.
func (b *Batcher) Run(ctx context.Context) {
	defer b.working.Wait()
	defer b.yield()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for expired, reviewed := (time.Time{}), time.Now(); ; {
		if err := b.look(ctx); err != nil && ctx.Err() == nil {
			b.deps.Logger.ErrorContext(ctx, "batches cannot be looked after; it is tried again", "error", err)
		}
		if now := time.Now(); b.isLeader() && now.Sub(expired) >= expireEvery {
			if err := b.deps.Store.Expire(ctx, now.Add(-effect.KeepResults)); err == nil {
				expired = now
			}
		}
		if now := time.Now(); now.Sub(reviewed) >= reviewEvery {
			reviewed = now
			b.review(ctx)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Stop ends the waits of calls for batches, which fail with [effect.ErrDraining]: a successor waits on for those with a
// key, and the others leave their batches.
func (b *Batcher) Stop() { b.stop.Do(func() { close(b.stopped) }) }

func (b *Batcher) isLeader() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leads
}

// look drives the groups that have something to do, if this process is the one that does so.
func (b *Batcher) look(ctx context.Context) error {
	leader, err := b.deps.Store.Lead(ctx, b.deps.Owner, "")
	if err == nil && leader != b.deps.Owner {
		alive, asked := b.deps.Alive(ctx, leader)
		if err = asked; err == nil && !alive {
			leader, err = b.deps.Store.Lead(ctx, b.deps.Owner, leader)
		}
	}
	if err != nil {
		return err
	}
	if leader != b.deps.Owner {
		b.yield()
		b.wakeAll() // Another process settles riders.
		return nil
	}
	if !b.isLeader() {
		if err := b.takeOver(ctx); err != nil {
			return err
		}
		b.mu.Lock()
		b.leads = true
		b.life, b.resign = context.WithCancel(ctx)
		b.mu.Unlock()
	}
	groups, err := b.deps.Store.Busy(ctx)
	for _, group := range groups {
		b.drive(group, false) //nolint:contextcheck // what drives a group lives as long as Run
	}
	return err
}

// yield ends what this process does as the leader, if it is the one: another process took it for dead, and must not
// meet a batch that this one is sending.
func (b *Batcher) yield() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leads {
		b.resign()
		b.leads, b.life, b.resign = false, nil, nil
		clear(b.drivers) // They end by themselves. A later leadership begins others.
	}
}

// takeOver drops the riders of calls that have ended with their processes, and notes the others.
func (b *Batcher) takeOver(ctx context.Context) error {
	riders, err := b.deps.Store.Pending(ctx)
	if err != nil {
		return err
	}
	alive := map[string]bool{"": true, b.deps.Owner: true}
	var gone []int64
	for _, r := range riders {
		if _, known := alive[r.Owner]; !known {
			if alive[r.Owner], err = b.deps.Alive(ctx, r.Owner); err != nil {
				return err
			}
		}
		if !alive[r.Owner] {
			gone = append(gone, r.ID)
		} else {
			b.note(r)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return b.deps.Store.Leave(ctx, gone...)
}

// note shows that a call waits for a batch.
func (b *Batcher) note(r Rider) {
	if r.Key.ID == "" {
		return
	}
	b.mu.Lock()
	b.noted[r.Key] = struct{}{}
	b.mu.Unlock()
	b.deps.Changed(r.Key, &effectv1.Note{Message: "waits for a batch of the provider", Time: timestamppb.New(r.Created)})
}

// unnote shows that calls wait for a batch no more. It ignores calls without a key.
func (b *Batcher) unnote(keys ...effect.Key) {
	for _, key := range keys {
		if key.ID == "" {
			continue
		}
		b.mu.Lock()
		delete(b.noted, key)
		b.mu.Unlock()
		b.deps.Changed(key, nil)
	}
}

// review shows that noted calls wait no more whose riders another process has settled or dropped. A store that fails is
// asked again later.
func (b *Batcher) review(ctx context.Context) {
	b.mu.Lock()
	over := maps.Clone(b.noted)
	b.mu.Unlock()
	if len(over) == 0 {
		return
	}
	riders, err := b.deps.Store.Pending(ctx)
	if err != nil {
		return
	}
	for _, r := range riders {
		delete(over, r.Key)
	}
	b.unnote(slices.Collect(maps.Keys(over))...)
}

// driver looks after one group.
type driver struct {
	wake     chan struct{}
	failures map[string]int       // consecutive ones by batch
	after    map[string]time.Time // when a batch that could not be sent is tried again
}

// drive makes sure that something looks after a group; at once if a rider has just joined.
func (b *Batcher) drive(group string, joined bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.drivers[group]
	if d == nil {
		if !b.leads || b.life.Err() != nil {
			return
		}
		d = &driver{wake: make(chan struct{}, 1), failures: map[string]int{}, after: map[string]time.Time{}}
		b.drivers[group] = d
		ctx := b.life
		b.working.Go(func() { b.run(ctx, group, d) })
	}
	if joined {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// run looks after a group until nothing of it is pending.
func (b *Batcher) run(ctx context.Context, group string, d *driver) {
	polled := time.Time{}
	for {
		next, pending, err := b.round(ctx, group, d, &polled)
		if err != nil && ctx.Err() == nil {
			b.deps.Logger.ErrorContext(ctx, "the batches of a model cannot be looked after; it is tried again", "error", err)
			next, pending = defaultTick, true
		}
		if !pending || ctx.Err() != nil {
			b.mu.Lock()
			if len(d.wake) == 0 || ctx.Err() != nil {
				if b.drivers[group] == d {
					delete(b.drivers, group)
				}
				b.mu.Unlock()
				return
			}
			b.mu.Unlock()
			next = 0
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-d.wake:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// round looks at the batches in flight if it is time, and sends what is ready. It returns when to look again, and
// whether anything is pending.
func (b *Batcher) round(ctx context.Context, group string, d *driver, polled *time.Time) (next time.Duration, pending bool, err error) {
	of, setting, err := b.deps.Store.Group(ctx, group)
	if err != nil {
		return 0, false, err
	}
	plan := planOf(setting)
	model, opened := b.deps.Open(of.Ref)
	var support *provider.BatchSupport
	if opened == nil {
		if support = supportOf(model); support == nil {
			opened = fmt.Errorf("%s has no batch API any more", of.Ref.Model)
		}
	}
	if support == nil { // The configuration has changed. It may change back, so that nothing is given up at once.
		return plan.tick, true, b.failAll(ctx, group, d, plan, opened)
	}
	plan = plan.within(support)
	open, err := b.deps.Store.OpenIn(ctx, group)
	if err != nil {
		return 0, false, err
	}
	if now := time.Now(); now.Sub(*polled) >= plan.tick {
		*polled = now
		if open, err = b.poll(ctx, of, support, d, plan, open); err != nil {
			return 0, false, err
		}
	}
	waiting, err := b.deps.Store.WaitingIn(ctx, group)
	if err != nil {
		return 0, false, err
	}
	for len(waiting) > 0 && len(open) < plan.maxBatches && ctx.Err() == nil {
		chosen, ready := plan.choose(waiting, time.Now())
		if !ready {
			break
		}
		sent, err := b.begin(ctx, group, of, model, chosen)
		if err != nil {
			return 0, false, err
		}
		waiting = waiting[len(chosen):]
		if sent.Requests == 0 {
			continue
		}
		if ended, err := b.send(ctx, of, support, d, plan, &sent); err != nil {
			return 0, false, err
		} else if !ended {
			open = append(open, sent)
		}
	}
	next = max(0, plan.tick-time.Since(*polled))
	if len(waiting) > 0 && len(open) < plan.maxBatches {
		next = min(next, max(0, plan.delay-time.Since(waiting[0].Created)))
	}
	return next, len(waiting)+len(open) > 0, nil
}

// failAll counts a failure of the group's batches whose model cannot be opened, and fails those with too many.
func (b *Batcher) failAll(ctx context.Context, group string, d *driver, plan plan, why error) error {
	open, err := b.deps.Store.OpenIn(ctx, group)
	for _, batch := range open {
		if err == nil {
			_, err = b.failed(ctx, d, plan, &batch, why)
		}
	}
	return err
}

// plan is the schedule of a group.
type plan struct {
	size, maxSize, maxBatches, maxFailures int
	maxBytes                               int64
	delay, tick                            time.Duration
}

func planOf(s *modelv1.BatchSetting) plan {
	p := plan{
		size: cmp.Or(int(s.GetSize()), defaultSize), maxSize: int(s.GetMaxSize()), maxBatches: cmp.Or(int(s.GetMaxBatches()), defaultMaxBatches),
		maxFailures: cmp.Or(int(s.GetMaxConsecutiveCheckFailures()), defaultMaxFailures), delay: defaultDelay, tick: defaultTick,
	}
	if s.GetSendDelay() != nil {
		p.delay = s.GetSendDelay().AsDuration()
	}
	if s.GetTick() != nil {
		p.tick = max(s.GetTick().AsDuration(), time.Millisecond)
	}
	return p
}

// within bounds the plan by what the provider takes.
func (p plan) within(s *provider.BatchSupport) plan {
	if p.maxSize == 0 || p.maxSize > s.MaxRequests {
		p.maxSize = s.MaxRequests
	}
	p.maxBytes = roomOf(s)
	return p
}

// roomOf returns how many bytes the bodies of a batch may have.
func roomOf(s *provider.BatchSupport) int64 { return s.MaxBytes / 100 * byteShare }

// choose returns the first of the waiting riders that fit into one batch, and whether it is to be sent now: it is full
// by count or by bytes, it has as many as it should, or the first has waited long enough.
func (p plan) choose(waiting []Rider, now time.Time) (chosen []int64, ready bool) {
	room, full := p.maxBytes, false
	for _, r := range waiting {
		if full = len(chosen) == p.maxSize || len(chosen) > 0 && r.Size > room; full {
			break
		}
		room -= r.Size
		chosen = append(chosen, r.ID)
	}
	return chosen, full || len(chosen) >= min(p.size, p.maxSize) || now.Sub(waiting[0].Created) >= p.delay
}

// begin stores an intended batch.
func (b *Batcher) begin(ctx context.Context, group string, of Group, model *provider.Model, riders []int64) (Batch, error) {
	return b.deps.Store.Begin(ctx, Batch{
		ID: "b" + strings.ToLower(rand.Text()[:20]), Group: group, Project: of.Ref.Project, Model: model.FullName(), Account: model.Account, Created: time.Now(),
	}, riders)
}

// poll looks at the open batches, and returns those that are still open.
func (b *Batcher) poll(ctx context.Context, of Group, support *provider.BatchSupport, d *driver, plan plan, open []Batch) ([]Batch, error) {
	ended := make([]bool, len(open))
	var group errgroup.Group
	group.SetLimit(polledAtOnce)
	for i := range open {
		group.Go(func() (err error) {
			ended[i], err = b.check(ctx, of, support, d, plan, &open[i])
			return err
		})
	}
	err := group.Wait()
	var left []Batch
	for i := range open {
		if !ended[i] {
			left = append(left, open[i])
		}
	}
	return left, err
}

// check moves a batch on. An error is the store's.
func (b *Batcher) check(ctx context.Context, of Group, support *provider.BatchSupport, d *driver, plan plan, batch *Batch) (ended bool, err error) {
	if batch.Phase == Intended {
		return b.resend(ctx, of, support, d, plan, batch)
	}
	living, err := b.deps.Store.Living(ctx, batch.ID)
	if err != nil {
		return false, err
	}
	asked, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := support.API.Status(asked, batch.VendorID)
	if err != nil {
		return b.failed(ctx, d, plan, batch, err)
	}
	if !status.Ended {
		said := ""
		if (batch.Cancelled || living == 0) && !batch.Guessed {
			if err := support.API.Cancel(asked, batch.VendorID); err != nil && ctx.Err() == nil {
				// The vendor can be asked for the batch, so that nothing is given up for it.
				said = "the batch cannot be cancelled, which is tried again: " + err.Error()
				b.deps.Logger.WarnContext(ctx, "a batch cannot be cancelled; it is tried again", "batch", batch.ID, "model", batch.Model, "error", err)
			}
		}
		b.forget(d, batch)
		if batch.Completed != status.Completed || batch.Failed != status.Failed || batch.Error != said {
			batch.Completed, batch.Failed, batch.Error = status.Completed, status.Failed, said
			err = b.deps.Store.Update(ctx, *batch)
		}
		return false, err
	}
	return b.collect(ctx, support, d, plan, batch, status)
}

// forget forgets the failures of a batch.
func (b *Batcher) forget(d *driver, batch *Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(d.failures, batch.ID)
	delete(d.after, batch.ID)
}

// failed counts a failure to send a batch or to ask for it, and fails its riders if there were too many in a row.
func (b *Batcher) failed(ctx context.Context, d *driver, plan plan, batch *Batch, why error) (ended bool, err error) {
	if ctx.Err() != nil {
		return false, nil
	}
	b.mu.Lock()
	d.failures[batch.ID]++
	failures := d.failures[batch.ID]
	b.mu.Unlock()
	batch.Error = why.Error()
	b.deps.Logger.WarnContext(ctx, "a batch cannot be looked after", "batch", batch.ID, "model", batch.Model, "failures", failures, "error", why)
	if failures >= plan.maxFailures {
		b.forget(d, batch)
		return true, b.end(ctx, batch, fmt.Sprintf("the batch is given up after %d failures in a row, the latest: %v", failures, why))
	}
	return false, b.deps.Store.Update(ctx, *batch)
}

// resend sends a batch of which it is unknown whether the vendor has it, unless it has.
func (b *Batcher) resend(ctx context.Context, of Group, support *provider.BatchSupport, d *driver, plan plan, batch *Batch) (ended bool, err error) {
	b.mu.Lock()
	after := d.after[batch.ID]
	b.mu.Unlock()
	if time.Now().Before(after) {
		return false, nil
	}
	asked, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	intent := intentOf(of, *batch)
	others, err := b.deps.Store.List(ctx, "", "", listed)
	if err != nil {
		return false, err
	}
	for _, other := range others {
		if other.VendorID != "" && other.ID != batch.ID {
			intent.NotThese = append(slices.Clip(intent.NotThese), other.VendorID)
		}
	}
	id, err := support.API.Find(asked, intent)
	switch {
	case err != nil:
		return b.failed(ctx, d, plan, batch, err)
	case id != "":
		b.forget(d, batch)
		batch.VendorID, batch.Guessed, batch.Phase, batch.Error = id, support.Anonymous, InFlight, ""
		return false, b.deps.Store.Update(ctx, *batch)
	case batch.Cancelled:
		return true, b.end(ctx, batch, "the batch was cancelled before it was sent")
	}
	return b.send(ctx, of, support, d, plan, batch)
}

func intentOf(of Group, batch Batch) provider.BatchIntent {
	_, model, _ := strings.Cut(of.Ref.Model, "/")
	return provider.BatchIntent{
		Key: batch.ID, Model: model, URL: of.URL, Header: of.Header, Requests: batch.Requests, Time: batch.Created,
		NotThese: batch.NotThese, Cancelled: batch.Cancelled,
	}
}

// send has the vendor take a batch. A refusal fails its riders; after any other failure it may have it.
func (b *Batcher) send(ctx context.Context, of Group, support *provider.BatchSupport, d *driver, plan plan, batch *Batch) (ended bool, err error) {
	sizes, err := b.deps.Store.Lines(ctx, batch.ID)
	if err != nil {
		return false, err
	}
	lines := make([]provider.BatchLine, 0, len(sizes))
	for _, id := range slices.Sorted(maps.Keys(sizes)) {
		lines = append(lines, provider.BatchLine{
			ID: lineID(batch.ID, id), Size: sizes[id], Body: func(ctx context.Context) ([]byte, error) { return b.deps.Store.Body(ctx, id) },
		})
	}
	moved, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	failpoint.Hit("modelgw/before-batch")
	id, err := support.API.Submit(moved, intentOf(of, *batch), lines)
	failpoint.Hit("modelgw/after-batch")
	if err == nil && id == "" {
		err = errors.New("the provider named no id of the batch")
	}
	switch failure, ok := provider.As(err); {
	case err == nil:
		b.forget(d, batch)
		batch.VendorID, batch.Phase, batch.Error = id, InFlight, ""
		b.deps.Logger.InfoContext(ctx, "a batch was sent", "batch", batch.ID, "model", batch.Model, "requests", batch.Requests)
		return false, b.deps.Store.Update(ctx, *batch)
	case ok && failure.Class == provider.Final && failure.Status != 0:
		batch.Error = err.Error()
		return true, b.end(ctx, batch, "the provider refused the batch: "+err.Error())
	}
	ended, stored := b.failed(ctx, d, plan, batch, err)
	b.mu.Lock()
	d.after[batch.ID] = time.Now().Add(retry.Default().Delay(max(1, d.failures[batch.ID]), 0))
	b.mu.Unlock()
	return ended, stored
}

// lineID is the id of a rider's line.
func lineID(batch string, rider int64) string { return batch + "-" + strconv.FormatInt(rider, 10) }

// riderOf is the rider of a line; false if the line is not of the batch.
func riderOf(batch, line string) (int64, bool) {
	number, ok := strings.CutPrefix(line, batch+"-")
	id, err := strconv.ParseInt(number, 10, 64)
	return id, ok && err == nil
}

// collect stores the results of a batch that has ended at its vendor.
func (b *Batcher) collect(ctx context.Context, support *provider.BatchSupport, d *driver, plan plan, batch *Batch, status provider.BatchStatus) (ended bool, err error) {
	results, size, foreign := map[int64]provider.BatchResult{}, 0, false
	seen, answered := map[int64]bool{}, 0 // whether a rider that was named has a result
	var stored error
	store := func() error {
		stored = b.settle(ctx, batch, results)
		clear(results)
		size = 0
		return stored
	}
	moved, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	err = support.API.Results(moved, status, func(r provider.BatchResult) error {
		rider, known := riderOf(batch.ID, r.ID)
		if !known {
			foreign = true
			return nil
		}
		if seen[rider] { // The first counts.
			return nil
		}
		if r.Status == 0 {
			r.Body = reason(r.Body)
		}
		if seen[rider] = r.Status != 0 || len(r.Body) > 0; !seen[rider] { // Another line, or the batch, says why.
			return nil
		}
		if r.Status == http.StatusOK {
			answered++
		}
		results[rider] = r
		if size += len(r.Body); len(results) < settledAtOnce && size < settledBytes {
			return nil
		}
		return store()
	})
	if stored == nil && len(results) > 0 { // Also those before a failure, which may be all that there are.
		_ = store() // It leaves its error in stored.
	}
	switch {
	case stored != nil:
		return false, stored
	case err != nil:
		batch.Completed = max(batch.Completed, answered)
		return b.failed(ctx, d, plan, batch, err)
	}
	failpoint.Hit("modelgw/after-batch-results")
	if batch.Guessed && foreign && len(seen) == 0 { // It was found, and is of someone else.
		b.forget(d, batch)
		batch.NotThese = append(batch.NotThese, batch.VendorID)
		batch.VendorID, batch.Guessed, batch.Phase = "", false, Intended
		return false, b.deps.Store.Update(ctx, *batch)
	}
	if len(seen) == 0 && !foreign && status.Completed > 0 { // They may come.
		return b.failed(ctx, d, plan, batch, fmt.Errorf("the provider has completed %d requests, and gives no result", status.Completed))
	}
	b.forget(d, batch)
	batch.Completed, batch.Error = answered, ""
	return true, b.end(ctx, batch, cmp.Or(status.Missing, "the provider gave no result for the request"))
}

// maxReason bounds the reason of a failure that is no answer, in bytes.
const maxReason = 4 << 10

// reason returns such a reason as a text of bounded length.
func reason(said []byte) []byte {
	return bytes.ToValidUTF8(said[:min(len(said), maxReason)], []byte("\uFFFD"))
}

// settle stores results and notifies those that wait for them.
func (b *Batcher) settle(ctx context.Context, batch *Batch, results map[int64]provider.BatchResult) error {
	keys, err := b.deps.Store.Settle(ctx, batch.ID, results)
	if err != nil {
		return err
	}
	b.mu.Lock()
	for rider := range results {
		b.wake(rider)
	}
	b.mu.Unlock()
	b.unnote(keys...)
	return nil
}

// end ends a batch. Its riders without a result fail, for the reason that missing says.
func (b *Batcher) end(ctx context.Context, batch *Batch, missing string) error {
	left, err := b.deps.Store.Unsettled(ctx, batch.ID)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(left, settledAtOnce) {
		results := map[int64]provider.BatchResult{}
		for _, rider := range some {
			results[rider] = provider.BatchResult{Body: []byte(missing)}
		}
		if err := b.settle(ctx, batch, results); err != nil {
			return err
		}
	}
	if len(left) > 0 && batch.Error == "" {
		batch.Error = missing
	}
	batch.Completed = min(batch.Completed, batch.Requests-len(left))
	batch.Failed = batch.Requests - batch.Completed
	batch.Phase, batch.Over = Ended, time.Now()
	b.deps.Logger.InfoContext(ctx, "a batch has ended", "batch", batch.ID, "model", batch.Model, "requests", batch.Requests, "without_result", len(left))
	return b.deps.Store.Update(ctx, *batch)
}

// wake wakes the calls that wait for a rider. b.mu is held.
func (b *Batcher) wake(rider int64) {
	for _, waiter := range b.waiting[rider] {
		close(waiter)
	}
	delete(b.waiting, rider)
}

func (b *Batcher) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for rider := range b.waiting {
		b.wake(rider)
	}
}

// awaits returns a channel that is closed when the rider may have changed, and a function that ends the use of it.
func (b *Batcher) awaits(rider int64) (changed <-chan struct{}, done func()) {
	waiter := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[rider] = append(b.waiting[rider], waiter)
	return waiter, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.waiting[rider] = slices.DeleteFunc(b.waiting[rider], func(w chan struct{}) bool { return w == waiter }); len(b.waiting[rider]) == 0 {
			delete(b.waiting, rider)
		}
	}
}

// Forget drops the riders of calls with these keys, whose results are needed no more. It ignores zero keys.
func (b *Batcher) Forget(ctx context.Context, keys ...effect.Key) error {
	var ids []int64
	for _, key := range keys {
		if key.ID == "" {
			continue
		}
		riders, err := b.deps.Store.OfKey(ctx, key)
		if err != nil {
			return err
		}
		for _, r := range riders {
			ids = append(ids, r.ID)
		}
		if len(riders) > 0 {
			b.unnote(key)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return b.deps.Store.Leave(ctx, ids...)
}

// ForgetRuns drops the riders of calls that runs of a project made. Runs are ids.
func (b *Batcher) ForgetRuns(ctx context.Context, project string, runs ...string) error {
	keys, err := b.deps.Store.LeaveRuns(ctx, project, runs...)
	b.unnote(keys...)
	return err
}

// List returns batches of a project, or of all if that is empty, the newest first: those before another one if its id
// is given, and at most limit.
func (b *Batcher) List(ctx context.Context, project, before string, limit int) ([]Batch, error) {
	return b.deps.Store.List(ctx, project, before, limit)
}

// Cancel has the vendor stop a batch of a project. It fails with RESOURCE_NOT_FOUND.
func (b *Batcher) Cancel(ctx context.Context, project, id string) (Batch, error) {
	batch, err := b.deps.Store.RequestCancel(ctx, project, id)
	if errors.Is(err, ErrNotFound) {
		return batch, rpcerr.ResourceNotFound("projects/" + project + "/batches/" + id)
	}
	return batch, err
}
