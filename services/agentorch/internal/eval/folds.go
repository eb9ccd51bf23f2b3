package eval

import (
	"context"
	"fmt"
	"sync"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

const (
	// maxSlots bounds the slots of the cached folds; a slot takes about a kilobyte.
	maxSlots = 100_000
	// maxSampleBytes bounds the cached samples, in their stored form.
	maxSampleBytes = 64 << 20
)

// folds caches recently read evaluations, so that a page of samples costs only its own size, and a change only the size
// of the change. Returned states are shared and must not be changed.
type folds struct {
	journals journal.Store
	blobs    Blobs

	mu      sync.Mutex
	states  *lru.Cache[string, *State]
	samples *lru.Cache[string, *Samples]
}

func newFolds(journals journal.Store, blobs Blobs) *folds {
	return &folds{
		journals: journals, blobs: blobs,
		states: lru.New[string, *State](maxSlots), samples: lru.New[string, *Samples](maxSampleBytes),
	}
}

// state folds the events since the last call.
func (f *folds) state(ctx context.Context, head journal.Head) (*State, error) {
	f.mu.Lock()
	before, ok := f.states.Get(head.Name)
	f.mu.Unlock()
	switch {
	case !ok:
		before = &State{}
	case before.Eval.GetHead() >= head.Seq:
		return before, nil
	}
	s := before.clone()
	if err := f.follow(ctx, head, s); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, ok := f.states.Get(head.Name); !ok || other.Eval.GetHead() < s.Eval.GetHead() {
		f.states.Put(head.Name, s, int64(len(s.Slots)))
	}
	return s, nil
}

// follow folds the events of a journal that s does not include yet.
func (f *folds) follow(ctx context.Context, head journal.Head, s *State) error {
	for event, err := range journal.All(ctx, f.journals, head.Ref, s.Eval.GetHead()) {
		if err != nil {
			return fmt.Errorf("read %s: %w", head.Name, journal.Gone(err, head.Name))
		}
		s.Apply(event)
	}
	return nil
}

// samplesOf reads the samples of an evaluation of that project.
func (f *folds) samplesOf(ctx context.Context, project string, ref *contentv1.BlobRef) (*Samples, error) {
	key := project + "/" + ref.GetHash()
	f.mu.Lock()
	samples, ok := f.samples.Get(key)
	f.mu.Unlock()
	if ok {
		return samples, nil
	}
	samples, err := loadSamples(ctx, f.blobs, project, ref)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.samples.Put(key, samples, ref.GetSize())
	return samples, nil
}
