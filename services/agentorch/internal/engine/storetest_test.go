package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
)

var (
	away      error = rpcerr.StoreUnavailable("io", time.Second, "the disk fails")
	noRequest runs.Key
)

// appendsAway accepts commands and beats, and refuses appends while it is away.
type appendsAway struct {
	journal.Store
	away atomic.Bool
}

func (s *appendsAway) Append(ctx context.Context, a journal.Append) error {
	if s.away.Load() {
		return away
	}
	return s.Store.Append(ctx, a)
}

// deafStore makes journals and answers with an error.
type deafStore struct {
	journal.Store
	deaf atomic.Bool
}

func (s *deafStore) Create(ctx context.Context, c journal.Creation) (journal.Head, bool, error) {
	head, created, err := s.Store.Create(ctx, c)
	if s.deaf.Load() {
		return journal.Head{}, false, away
	}
	return head, created, err
}

// liar makes every third append of a journal durable and returns an error for it.
type liar struct {
	journal.Store
	says error

	mu      sync.Mutex
	appends map[string]int
}

func (s *liar) Append(ctx context.Context, a journal.Append) error {
	err := s.Store.Append(ctx, a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.appends == nil {
		s.appends = map[string]int{}
	}
	if s.appends[a.Head.Name]++; err == nil && s.appends[a.Head.Name]%3 == 0 {
		return s.says
	}
	return err
}
