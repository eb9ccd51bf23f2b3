package batch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch/memory"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vendor is a batch API in memory.
type vendor struct {
	mu      sync.Mutex
	batches []*sent
	// hold keeps batches in progress. submit, status and find fail with these errors, if they are set.
	hold                 bool
	submit, status, find error
	// cancel is the error of the next cancellations.
	cancel error
	// takes means that a batch is taken although submit fails.
	takes bool
	// reply answers a request; nil answers with its body. An answer without a status and a body is none.
	reply     func(line line) provider.BatchResult
	missing   string
	cancelled []string
	polls     int
	// sought are the searches so far: whether each was for a batch that is cancelled.
	sought []bool
	// foreign are ids that find returns before it looks.
	foreign []string
	// hangSubmit and hangResults are how many of the next requests never end by themselves.
	hangSubmit, hangResults int
	// broken is the error after the last result. Empty means that a line without a result comes before each.
	broken error
	empty  bool
	// completed is how many requests the vendor says to have answered, and blank how many of the next results are
	// empty.
	completed, blank int
}

// hang waits for the end of a request, if it is one that hangs. v.mu is held but meanwhile.
func (v *vendor) hang(ctx context.Context, times *int) error {
	if *times == 0 {
		return nil
	}
	*times--
	v.mu.Unlock()
	defer v.mu.Lock()
	<-ctx.Done()
	return ctx.Err()
}

type sent struct {
	id     string
	intent provider.BatchIntent
	lines  []line
}

// line is a request as the vendor got it.
type line struct {
	ID   string
	Body []byte
}

func (v *vendor) Submit(ctx context.Context, i provider.BatchIntent, lines []provider.BatchLine) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.hang(ctx, &v.hangSubmit); err != nil {
		return "", err
	}
	if v.submit == nil || v.takes {
		taken := &sent{id: fmt.Sprint("v", len(v.batches)+1), intent: i}
		for _, l := range lines {
			body, err := l.Body(ctx)
			if err != nil || int64(len(body)) != l.Size {
				return "", fmt.Errorf("a body of %d bytes has %d: %w", l.Size, len(body), err)
			}
			taken.lines = append(taken.lines, line{l.ID, body})
		}
		v.batches = append(v.batches, taken)
	}
	if v.submit != nil {
		return "", v.submit
	}
	return v.batches[len(v.batches)-1].id, nil
}

func (v *vendor) Find(_ context.Context, i provider.BatchIntent) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sought = append(v.sought, i.Cancelled)
	for _, id := range v.foreign {
		if !slices.Contains(i.NotThese, id) {
			return id, nil
		}
	}
	for _, b := range v.batches {
		if b.intent.Key == i.Key {
			return b.id, v.find
		}
	}
	return "", v.find
}

func (v *vendor) Status(_ context.Context, id string) (provider.BatchStatus, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.polls++
	return provider.BatchStatus{ID: id, Ended: !v.hold || slices.Contains(v.cancelled, id), Completed: v.completed, Missing: v.missing}, v.status
}

func (v *vendor) Results(ctx context.Context, s provider.BatchStatus, each func(provider.BatchResult) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.hang(ctx, &v.hangResults); err != nil {
		return err
	}
	if v.blank > 0 {
		v.blank--
		return nil
	}
	if slices.Contains(v.foreign, s.ID) {
		return each(provider.BatchResult{ID: "bsomeone-1", Status: http.StatusOK, Body: []byte("secret of another")})
	}
	for _, b := range v.batches {
		if b.id != s.ID {
			continue
		}
		for _, line := range slices.Backward(b.lines) {
			result := provider.BatchResult{Status: http.StatusOK, Body: line.Body}
			if v.reply != nil {
				result = v.reply(line)
			}
			if result.Status == 0 && result.Body == nil {
				continue
			}
			result.ID = line.ID
			if v.empty {
				if err := each(provider.BatchResult{ID: line.ID}); err != nil {
					return err
				}
			}
			if err := each(result); err != nil {
				return err
			}
		}
	}
	return v.broken
}

func (v *vendor) Cancel(_ context.Context, id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cancel != nil {
		return v.cancel
	}
	v.cancelled = append(v.cancelled, id)
	return nil
}

// sizes are the numbers of requests of the batches that the vendor took.
func (v *vendor) sizes() (all []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range v.batches {
		all = append(all, len(b.lines))
	}
	return all
}

func (v *vendor) do(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

// model is one whose only purpose is its batch API.
type model struct {
	provider.Provider
	support *provider.BatchSupport
}

func (m model) Capabilities() provider.Capabilities { return provider.Capabilities{Batch: m.support} }

// fleet is a vendor, a store, and the batchers of processes.
type fleet struct {
	t       *testing.T
	vendor  *vendor
	store   batch.Store
	model   *provider.Model
	setting *modelv1.BatchSetting

	mu    sync.Mutex
	alive map[string]bool
	notes map[note]int // calls that processes show to wait
}

// note is a call that a process shows to wait.
type note struct {
	owner string
	key   effect.Key
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, vendor: &vendor{}, store: &memory.Store{}, alive: map[string]bool{}, notes: map[note]int{}}
	f.model = &provider.Model{Kind: provider.Kind{Name: "v"}, Name: "m", Account: "default"}
	f.model.Provider = model{support: &provider.BatchSupport{API: f.vendor, MaxRequests: 10, MaxBytes: 1000, Headers: []string{"Beta"}}}
	f.setting = &modelv1.BatchSetting{Enabled: true, Size: new(int32(3)), SendDelay: durationpb.New(10 * time.Second), Tick: durationpb.New(time.Second)}
	return f
}

var ref = provider.Ref{Project: "p", Model: "v/m"}

// live sets whether a process is taken for alive.
func (f *fleet) live(owner string, alive bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alive[owner] = alive
}

// start runs a process. The returned function ends it as a crash does.
func (f *fleet) start(owner string) (*batch.Batcher, func()) {
	f.live(owner, true)
	b := batch.New(batch.Deps{
		Store: f.store, Owner: owner, Logger: slog.New(slog.DiscardHandler),
		Alive: func(_ context.Context, owner string) (bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.alive[owner], nil
		},
		Open: func(asked provider.Ref) (*provider.Model, error) {
			assert.Equal(f.t, ref, asked)
			return f.model, nil
		},
		Changed: func(key effect.Key, shown *effectv1.Note) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if delete(f.notes, note{owner, key}); shown != nil {
				f.notes[note{owner, key}] = 1
			}
		},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run(ctx)
	}()
	synctest.Wait()
	return b, func() {
		cancel()
		<-ended
		f.live(owner, false)
		f.mu.Lock()
		defer f.mu.Unlock()
		maps.DeleteFunc(f.notes, func(n note, _ int) bool { return n.owner == owner })
	}
}

// ride is the transport of a call.
func (f *fleet) ride(b *batch.Batcher, id string, change ...func(*batch.Call)) *batch.Ride {
	c := batch.Call{Ref: ref, Model: f.model, Key: effect.Key{Project: "p", ID: id}, Setting: f.setting}
	for _, change := range change {
		change(&c)
	}
	return b.Ride(c)
}

func deferred(c *batch.Call) { c.Defer = true }

func post(body string) provider.Post {
	return provider.Post{URL: "https://vendor/x", Header: http.Header{"Authorization": {"secret"}, "Beta": {"b"}}, Body: []byte(body)}
}

// outcome is what a call got.
type outcome struct {
	status int
	body   string
	err    error
}

func carry(ctx context.Context, r *batch.Ride, body string) (o outcome) {
	answer, err := r.Carry(ctx, post(body))
	if err != nil {
		return outcome{err: err}
	}
	read, err := io.ReadAll(answer.Body)
	return outcome{answer.StatusCode, string(read), errors.Join(err, answer.Body.Close())}
}

// carryAll makes calls at once, and returns what they got, by their number.
func (f *fleet) carryAll(b *batch.Batcher, n int, change ...func(*batch.Call)) []outcome {
	all := make([]outcome, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			all[i] = carry(f.t.Context(), f.ride(b, fmt.Sprint("r/", i), change...), fmt.Sprint("body ", i))
		})
	}
	calls.Wait()
	return all
}

func TestCallsShareABatchAndGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		b, stop := f.start("one")
		defer stop()
		for i, got := range f.carryAll(b, 7) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
		}
		total := 0
		for _, size := range f.vendor.sizes() {
			total += size
		}
		assert.Equal(t, 7, total)
		assert.Less(t, len(f.vendor.sizes()), 4)
		assert.Empty(t, f.notes, "nothing waits any more")
		assert.Equal(t, http.Header{"Beta": {"b"}}, f.vendor.batches[0].intent.Header, "credentials are not stored")
	})
}

func TestWhenABatchIsSent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		calls   int
		setting func(*modelv1.BatchSetting)
		// sizes are those of the batches in flight after a time.
		after time.Duration
		sizes []int
	}{
		"not before there are enough":             {2, func(*modelv1.BatchSetting) {}, 9 * time.Second, nil},
		"when the first has waited long enough":   {2, func(*modelv1.BatchSetting) {}, 10 * time.Second, []int{2}},
		"at once when there are enough":           {3, func(*modelv1.BatchSetting) {}, time.Second, []int{3}},
		"no larger than it may be":                {5, func(s *modelv1.BatchSetting) { s.MaxSize, s.Size = new(int32(2)), new(int32(5)) }, time.Second, []int{2, 2}},
		"no larger than the provider allows":      {12, func(s *modelv1.BatchSetting) { s.MaxSize, s.Size = new(int32(50)), new(int32(50)) }, time.Second, []int{10}},
		"no more batches than there may be":       {9, func(s *modelv1.BatchSetting) { s.MaxSize, s.MaxBatches = new(int32(2)), new(int32(3)) }, 20 * time.Second, []int{2, 2, 2}},
		"after its delay, whatever the size asks": {1, func(s *modelv1.BatchSetting) { s.Size, s.SendDelay = new(int32(100)), durationpb.New(0) }, time.Second, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				tt.setting(f.setting)
				f.vendor.hold = true
				b := batch.New(batch.Deps{Store: f.store, Owner: "early", Logger: slog.New(slog.DiscardHandler)})
				for _, got := range f.carryAll(b, tt.calls, deferred) { // They join before anyone looks.
					assert.True(t, rpcerr.Is(got.err, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING), "%v", got.err)
				}
				_, stop := f.start("one")
				defer stop()
				time.Sleep(tt.after)
				synctest.Wait()
				assert.Equal(t, tt.sizes, f.vendor.sizes())
			})
		})
	}
}

func TestABatchIsBoundedByItsBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.setting.Size = new(int32(100))
		b, stop := f.start("one")
		defer stop()
		var calls sync.WaitGroup
		for i := range 5 {
			calls.Go(func() {
				got := carry(t.Context(), f.ride(b, fmt.Sprint("r/", i)), strings.Repeat("x", 400)+fmt.Sprint(i))
				assert.NoError(t, got.err)
			})
		}
		calls.Wait()
		assert.Equal(t, []int{2, 2, 1}, f.vendor.sizes(), "95 % of 1000 bytes hold two of them")
		got := carry(t.Context(), f.ride(b, "r/large"), strings.Repeat("x", 951))
		failure, ok := provider.As(got.err)
		require.True(t, ok)
		assert.Equal(t, provider.Final, failure.Class)
		assert.ErrorContains(t, got.err, "at most 950")
	})
}

func TestAFailureIsOfItsOwnRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.missing = "the batch has expired"
		f.vendor.reply = func(line line) provider.BatchResult {
			switch string(line.Body) {
			case "body 0":
				return provider.BatchResult{Status: http.StatusTooManyRequests, Body: []byte(`{"error":"slow down"}`)}
			case "body 1":
				return provider.BatchResult{}
			}
			return provider.BatchResult{Status: http.StatusOK, Body: line.Body}
		}
		b, stop := f.start("one")
		defer stop()
		got := f.carryAll(b, 3)
		assert.Equal(t, outcome{status: http.StatusTooManyRequests, body: `{"error":"slow down"}`}, got[0])
		assert.ErrorContains(t, got[1].err, "the batch has expired")
		assert.Equal(t, provider.Final, provider.ClassOfError(got[1].err))
		assert.Equal(t, http.StatusOK, got[2].status)
		past, err := f.ride(b, "r/0").Past(t.Context())
		require.NoError(t, err)
		require.Len(t, past.Failed, 1, "attempts are known over requests with the key")
		assert.Equal(t, "v answered 429 in a batch", past.Failed[0].GetError())
		assert.EqualValues(t, http.StatusTooManyRequests, past.Failed[0].GetStatus())

		f.vendor.do(func() { f.vendor.reply = nil })
		assert.Equal(t, outcome{status: http.StatusOK, body: "body 0"}, carry(t.Context(), f.ride(b, "r/0"), "body 0"), "it rides again")

		again := f.ride(b, "r/1")
		assert.ErrorContains(t, carry(t.Context(), again, "body 1").err, "the batch has expired", "a failure that ends a call is given again, as after a crash")
		past, err = f.ride(b, "r/1").Past(t.Context())
		require.NoError(t, err)
		assert.Empty(t, past.Failed)
		assert.Equal(t, []int{3, 1}, f.vendor.sizes())
		assert.Equal(t, outcome{status: http.StatusOK, body: "body 1"}, carry(t.Context(), again, "body 1"), "another attempt of the call rides again")
		past, err = f.ride(b, "r/1").Past(t.Context())
		require.NoError(t, err)
		require.Len(t, past.Failed, 1)
		assert.Equal(t, "v: the batch has expired", past.Failed[0].GetError())
	})
}

func TestARefusedBatchFailsItsRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.submit = &provider.Error{Provider: "v", Status: http.StatusBadRequest, Message: "no batches"}
		b, stop := f.start("one")
		defer stop()
		for _, got := range f.carryAll(b, 3) {
			assert.ErrorContains(t, got.err, "no batches")
		}
		batches, err := b.List(t.Context(), "p", "", 9)
		require.NoError(t, err)
		require.Len(t, batches, 1)
		assert.Equal(t, batch.Ended, batches[0].Phase)
		assert.Equal(t, 3, batches[0].Failed)
	})
}

// TestABatchIsNotSentTwice: whatever happens between the vendor and the record of its answer.
func TestABatchIsNotSentTwice(t *testing.T) {
	t.Parallel()
	lost := &provider.Error{Provider: "v", Class: provider.Transient, Message: "the connection failed"}
	for name, taken := range map[string]bool{"the vendor has it": true, "the vendor does not have it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.vendor.submit, f.vendor.takes = lost, taken
				b, crash := f.start("one")
				for range 3 {
					got := f.carryAll(b, 3, deferred)
					assert.True(t, rpcerr.Is(got[0].err, errorsv1.ErrorReason_ERROR_REASON_BATCH_PENDING), "%v", got[0].err)
					synctest.Wait()
				}
				crash()
				f.vendor.do(func() { f.vendor.submit = nil })
				b, stop := f.start("two")
				defer stop()
				for i, got := range f.carryAll(b, 3) {
					assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
				}
				assert.Equal(t, []int{3}, f.vendor.sizes())
			})
		})
	}
}

func TestABatchInFlightOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.hold = true
		b, crash := f.start("one")
		f.carryAll(b, 3, deferred)
		time.Sleep(3 * time.Second)
		require.Equal(t, []int{3}, f.vendor.sizes())
		crash()
		b, stop := f.start("two")
		defer stop()
		assert.Len(t, f.notes, 3, "the successor knows who waits")
		past, err := f.ride(b, "r/1", deferred).Past(t.Context())
		require.NoError(t, err)
		assert.Error(t, past.Pending)
		assert.False(t, past.Since.IsZero())
		f.vendor.do(func() { f.vendor.hold = false })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Empty(t, f.notes)
		for i, got := range f.carryAll(b, 3, deferred) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
		}
		assert.Equal(t, []int{3}, f.vendor.sizes())
	})
}

func TestAFoundBatchOfAnotherIsPutBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.model.Provider.(model).support.Anonymous = true
		f.vendor.submit, f.vendor.takes, f.vendor.foreign = &provider.Error{Provider: "v", Class: provider.Transient}, true, []string{"w1"}
		b, stop := f.start("one")
		defer stop()
		for i, got := range f.carryAll(b, 3) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
		}
		assert.Equal(t, []int{3}, f.vendor.sizes())
	})
}

func TestPollsThatFailEndABatchWhenThereAreTooMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.setting.MaxConsecutiveCheckFailures = new(int32(5))
		f.vendor.status = &provider.Error{Provider: "v", Class: provider.Transient, Status: 503, Message: "busy"}
		b, stop := f.start("one")
		defer stop()
		for _, got := range f.carryAll(b, 3) {
			assert.ErrorContains(t, got.err, "given up after 5 failures")
		}
		assert.Equal(t, 5, f.vendor.polls)
	})
}

// TestABatchThatHasEndedIsShownAsItEnded: earlier failures to ask for it are over, and its counts are those of its
// results.
func TestABatchThatHasEndedIsShownAsItEnded(t *testing.T) {
	t.Parallel()
	for missing, lacking := range map[string]string{"": "", "the batch has expired": "body 1"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.vendor.missing, f.vendor.hold = missing, true
			f.vendor.reply = func(l line) provider.BatchResult {
				if string(l.Body) == lacking {
					return provider.BatchResult{}
				}
				return provider.BatchResult{Status: http.StatusOK, Body: l.Body}
			}
			b, stop := f.start("one")
			defer stop()
			time.AfterFunc(time.Minute, func() {
				f.vendor.do(func() {
					f.vendor.status = &provider.Error{Provider: "v", Class: provider.Transient, Status: 503, Message: "busy"}
				})
				time.Sleep(10 * time.Second)
				f.vendor.do(func() { f.vendor.status, f.vendor.hold = nil, false })
			})
			f.carryAll(b, 3)
			all, err := b.List(t.Context(), "p", "", 10)
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.Equal(t, missing, all[0].Error)
			assert.Equal(t, all[0].Requests, all[0].Completed+all[0].Failed)
			assert.Equal(t, lacking == "", all[0].Completed == 3)
		})
	}
}

func TestABatchIsCancelled(t *testing.T) {
	t.Parallel()
	for name, cancel := range map[string]func(*testing.T, *batch.Batcher){
		"by an operator": func(t *testing.T, b *batch.Batcher) {
			batches, err := b.List(t.Context(), "p", "", 9)
			require.NoError(t, err)
			got, err := b.Cancel(t.Context(), "p", batches[0].ID)
			require.NoError(t, err)
			assert.True(t, got.Cancelled)
			_, err = b.Cancel(t.Context(), "p", "nosuch")
			assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)
		},
		"when nobody waits for it": func(t *testing.T, b *batch.Batcher) {
			for i := range 3 {
				require.NoError(t, b.Forget(t.Context(), effect.Key{Project: "p", ID: fmt.Sprint("r/", i)}))
			}
		},
		"when its runs have ended": func(t *testing.T, b *batch.Batcher) { require.NoError(t, b.ForgetRuns(t.Context(), "p", "r")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.vendor.hold, f.vendor.missing = true, "the batch was cancelled"
				f.vendor.reply = func(line) provider.BatchResult { return provider.BatchResult{} }
				b, stop := f.start("one")
				defer stop()
				f.carryAll(b, 3, deferred)
				time.Sleep(2 * time.Second)
				cancel(t, b)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				assert.Equal(t, []string{"v1"}, f.vendor.cancelled)
				batches, err := b.List(t.Context(), "p", "", 9)
				require.NoError(t, err)
				assert.Equal(t, batch.Ended, batches[0].Phase)
				assert.Empty(t, f.notes)
			})
		})
	}
}

func TestACallWithoutAKeyEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.hold = true
		b, crash := f.start("one")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan outcome)
		go func() { got <- carry(ctx, f.ride(b, ""), "x") }()
		synctest.Wait()
		cancel()
		assert.ErrorIs(t, (<-got).err, context.Canceled)
		pending, err := f.store.Pending(t.Context())
		require.NoError(t, err)
		assert.Empty(t, pending, "it is taken out again")

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		go func() { got <- carry(ctx, f.ride(b, ""), "x") }()
		synctest.Wait()
		crash()
		b.Stop()
		assert.ErrorIs(t, (<-got).err, effect.ErrDraining)
		pending, err = f.store.Pending(t.Context())
		require.NoError(t, err)
		assert.Empty(t, pending, "nobody will ask for it, and another process may still send it")

		f.store = &memory.Store{}
		b, crash = f.start("one")
		go func() { got <- carry(ctx, f.ride(b, ""), "x") }()
		synctest.Wait()
		crash()
		_, stop := f.start("two")
		defer stop()
		pending, err = f.store.Pending(t.Context())
		require.NoError(t, err)
		assert.Empty(t, pending, "its process is gone")
		b.Stop()
		assert.ErrorIs(t, (<-got).err, effect.ErrDraining)
	})
}

func TestTheTimeOfAnAttemptBoundsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.hold = true
		b, stop := f.start("one")
		defer stop()
		bounded := func(c *batch.Call) { c.Timeout = time.Minute }
		began := time.Now()
		got := f.carryAll(b, 3, bounded)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Equal(t, provider.Transient, provider.ClassOfError(got[0].err), "%v", got[0].err)
		assert.ErrorContains(t, got[0].err, "longer than 1m0s")

		f.carryAll(b, 3, bounded, deferred)
		time.Sleep(time.Minute)
		past, err := f.ride(b, "r/0", bounded, deferred).Past(t.Context())
		require.NoError(t, err)
		assert.NoError(t, past.Pending, "it is late, which the call itself learns")
		assert.ErrorContains(t, f.carryAll(b, 1, bounded, deferred)[0].err, "longer than 1m0s")
	})
}

func TestOneProcessSendsForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, crash := f.start("one")
		other, stop := f.start("two")
		defer stop()
		for i, got := range f.carryAll(other, 3) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
		}
		assert.Equal(t, []int{3}, f.vendor.sizes())
		crash()
		got := carry(t.Context(), f.ride(other, "r/9"), "late")
		assert.Equal(t, outcome{status: http.StatusOK, body: "late"}, got, "the other one takes over")
	})
}

// TestAProcessThatWasTakenForDeadLeadsNoMore: two that send would send what the other one is sending.
func TestAProcessThatWasTakenForDeadLeadsNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.hold = true
		one, stop := f.start("one")
		defer stop()
		f.carryAll(one, 3, deferred)
		time.Sleep(2 * time.Second)
		_, crash := f.start("two")
		f.live("one", false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f.vendor.do(func() { f.vendor.polls = 0 })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		f.vendor.do(func() { assert.LessOrEqual(t, f.vendor.polls, 11, "one of them asks once a second") })

		f.live("one", true)
		crash()
		f.vendor.do(func() { f.vendor.hold = false })
		for i, got := range f.carryAll(one, 3) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got, "it leads again when the other one is dead")
		}
		assert.Equal(t, []int{3}, f.vendor.sizes())
	})
}

func TestARequestThatHangsIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.hangSubmit, f.vendor.hangResults = 1, 1
		b, stop := f.start("one")
		defer stop()
		for i, got := range f.carryAll(b, 3) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
		}
		assert.Equal(t, []int{3}, f.vendor.sizes())
	})
}

// TestAnswersBeforeAFailureAreKept: the vendor may have another file for failures, which cannot be read.
func TestAnswersBeforeAFailureAreKept(t *testing.T) {
	t.Parallel()
	for _, class := range []provider.Class{provider.Transient, provider.Final} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.vendor.broken = &provider.Error{Provider: "v", Class: class, Status: http.StatusNotFound, Message: "no such file"}
			f.vendor.reply = func(l line) provider.BatchResult {
				if string(l.Body) == "body 1" {
					return provider.BatchResult{}
				}
				return provider.BatchResult{Status: http.StatusOK, Body: l.Body}
			}
			b, stop := f.start("one")
			defer stop()
			all := f.carryAll(b, 3)
			assert.Equal(t, outcome{status: http.StatusOK, body: "body 0"}, all[0])
			assert.ErrorContains(t, all[1].err, "no such file")
			assert.Equal(t, outcome{status: http.StatusOK, body: "body 2"}, all[2])
			shown, err := b.List(t.Context(), "p", "", 10)
			require.NoError(t, err)
			require.Len(t, shown, 1)
			assert.Equal(t, 2, shown[0].Completed)
			assert.Equal(t, 1, shown[0].Failed)
		})
	}
}

// TestAnswersThatAreNotThereYetAreAskedForAgain: a vendor, or a proxy before it, may give an empty file at first.
func TestAnswersThatAreNotThereYetAreAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.completed, f.vendor.blank = 3, 2
		b, stop := f.start("one")
		defer stop()
		for i, got := range f.carryAll(b, 3) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
		}
	})
}

// TestALineWithoutAResultHidesNone: a vendor may list a failed request among the answers, and say why in another file.
func TestALineWithoutAResultHidesNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.empty = true
		b, stop := f.start("one")
		defer stop()
		for i, got := range f.carryAll(b, 3) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
		}
	})
}

func TestAFoundBatchOfAnotherIsPutBackThoughACallHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.model.Provider.(model).support.Anonymous = true
		f.vendor.submit, f.vendor.takes, f.vendor.foreign, f.vendor.hold = &provider.Error{Provider: "v", Class: provider.Transient}, true, []string{"w1"}, true
		b, stop := f.start("one")
		defer stop()
		f.carryAll(b, 3, deferred)
		time.Sleep(time.Minute)
		require.NoError(t, b.Forget(t.Context(), effect.Key{Project: "p", ID: "r/2"}))
		f.vendor.do(func() { f.vendor.hold = false })
		time.Sleep(time.Minute)
		for i, got := range f.carryAll(b, 2) {
			assert.Equal(t, outcome{status: http.StatusOK, body: fmt.Sprint("body ", i)}, got)
		}
		assert.Equal(t, []int{3}, f.vendor.sizes())
	})
}

// TestAReasonIsShortText: it is stored, and becomes a part of errors.
func TestAReasonIsShortText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.reply = func(line) provider.BatchResult {
			return provider.BatchResult{Body: []byte("no\xff" + strings.Repeat("x", 1<<20))}
		}
		b, stop := f.start("one")
		defer stop()
		f.carryAll(b, 3, deferred)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		riders, err := f.store.OfKey(t.Context(), effect.Key{Project: "p", ID: "r/0"})
		require.NoError(t, err)
		require.Len(t, riders, 1)
		rider, err := f.store.Rider(t.Context(), riders[0].ID)
		require.NoError(t, err)
		assert.True(t, utf8.Valid(rider.Result.Body))
		assert.Less(t, len(rider.Result.Body), 5<<10)
		assert.ErrorContains(t, f.carryAll(b, 1)[0].err, "no")
	})
}

func TestAProcessLearnsWhatAnotherHasSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.hold = true
		_, stop := f.start("one")
		defer stop()
		other, stopOther := f.start("two")
		defer stopOther()
		f.carryAll(other, 3, deferred)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, f.notes, 3, "they wait")
		f.vendor.do(func() { f.vendor.hold = false })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Empty(t, f.notes, "they are answered, though by another process")
	})
}

// A vendor that does not cancel can still be asked for the batch: its calls wait, and it is asked to cancel again.
func TestACancellationThatFailsGivesNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.setting.MaxConsecutiveCheckFailures = new(int32(2))
		f.vendor.hold, f.vendor.cancel = true, errors.New("not now")
		b, stop := f.start("one")
		defer stop()
		answers := make(chan outcome, 1)
		go func() { answers <- carry(t.Context(), f.ride(b, "r/0"), "body") }()
		time.Sleep(15 * time.Second)
		batches, err := b.List(t.Context(), "p", "", 10)
		require.NoError(t, err)
		_, err = b.Cancel(t.Context(), "p", batches[0].ID)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		batches, err = b.List(t.Context(), "p", "", 10)
		require.NoError(t, err)
		assert.Equal(t, batch.InFlight, batches[0].Phase)
		assert.Contains(t, batches[0].Error, "cannot be cancelled, which is tried again: not now")
		assert.Empty(t, answers)
		f.vendor.do(func() { f.vendor.cancel = nil })
		assert.Equal(t, outcome{status: http.StatusOK, body: "body"}, <-answers, "what the vendor has by then is used")
	})
}

// A batch that is cancelled while it is sent is found though it is not whole, so that it can be cancelled.
func TestACancelledBatchIsLookedForAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.vendor.hold, f.vendor.takes, f.vendor.submit = true, true, errors.New("lost")
		b, stop := f.start("one")
		defer stop()
		answers := make(chan outcome, 1)
		go func() { answers <- carry(t.Context(), f.ride(b, "r/0"), "body") }()
		time.Sleep(10*time.Second + time.Millisecond)
		batches, err := b.List(t.Context(), "p", "", 10)
		require.NoError(t, err)
		_, err = b.Cancel(t.Context(), "p", batches[0].ID)
		require.NoError(t, err)
		<-answers
		assert.Equal(t, []bool{true}, f.vendor.sought)
		assert.Equal(t, []string{"v1"}, f.vendor.cancelled)
	})
}
