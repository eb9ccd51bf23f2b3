// Package memory is a store of batches that ends with its process, for tests and for gateways without a database.
package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Store implements [batch.Store]. The zero value is empty and ready to use.
type Store struct {
	mu      sync.Mutex
	last    int64
	leader  string
	groups  map[string]group
	riders  map[int64]*rider
	batches []*batch.Batch // in the order of their creation
}

type group struct {
	batch.Group
	setting *modelv1.BatchSetting
}

type rider struct {
	batch.Rider
	body []byte
}

var _ batch.Store = (*Store)(nil)

// Join implements [batch.Store].
func (s *Store) Join(_ context.Context, of batch.Group, setting *modelv1.BatchSetting, key effect.Key, owner string, body []byte) (batch.Rider, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := sha256.Sum256(body)
	if key.ID != "" {
		for _, r := range s.sorted() {
			if r.Key == key && r.Hash == hash && r.State <= batch.Answered {
				return r.Rider, nil
			}
		}
	}
	if s.groups == nil {
		s.groups, s.riders = map[string]group{}, map[int64]*rider{}
	}
	id := of.ID()
	s.groups[id] = group{of, setting}
	s.last++
	added := &rider{batch.Rider{ID: s.last, Group: id, Key: key, Owner: owner, Hash: hash, Size: int64(len(body)), State: batch.Waiting, Created: time.Now()}, slices.Clone(body)}
	s.riders[s.last] = added
	return added.Rider, nil
}

// sorted returns the riders in the order in which they joined.
func (s *Store) sorted() []*rider {
	return slices.SortedFunc(maps.Values(s.riders), func(a, b *rider) int { return cmp.Compare(a.ID, b.ID) })
}

// some returns the riders that a function selects.
func (s *Store) some(wanted func(*rider) bool) (all []batch.Rider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sorted() {
		if wanted(r) {
			all = append(all, r.Rider)
		}
	}
	return all
}

// Rider implements [batch.Store].
func (s *Store) Rider(_ context.Context, id int64) (batch.Rider, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.riders[id]; r != nil {
		return r.Rider, nil
	}
	return batch.Rider{}, batch.ErrNotFound
}

// OfKey implements [batch.Store].
func (s *Store) OfKey(_ context.Context, key effect.Key) ([]batch.Rider, error) {
	all := s.some(func(r *rider) bool { return r.Key == key })
	for i := range all {
		if all[i].State != batch.Told {
			all[i].Result = provider.BatchResult{}
		}
	}
	return all, nil
}

// Tell implements [batch.Store].
func (s *Store) Tell(_ context.Context, id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.riders[id]; r != nil {
		r.State = batch.Told
	}
	return nil
}

// Leave implements [batch.Store].
func (s *Store) Leave(_ context.Context, ids ...int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.leave(id)
	}
	return nil
}

func (s *Store) leave(id int64) {
	r := s.riders[id]
	switch {
	case r == nil:
	case r.State == batch.Sent:
		r.State, r.Key = batch.Left, effect.Key{Project: r.Key.Project}
	case r.State != batch.Left:
		delete(s.riders, id)
	}
}

// LeaveRuns implements [batch.Store].
func (s *Store) LeaveRuns(_ context.Context, project string, runs ...string) (keys []effect.Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sorted() {
		if r.Key.Project == project && r.Key.ID != "" && slices.Contains(runs, r.Key.Run()) {
			keys = append(keys, r.Key)
			s.leave(r.ID)
		}
	}
	return keys, nil
}

// Lead implements [batch.Store].
func (s *Store) Lead(_ context.Context, owner, dead string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader == dead {
		s.leader = owner
	}
	return s.leader, nil
}

// Group implements [batch.Store].
func (s *Store) Group(_ context.Context, id string) (batch.Group, *modelv1.BatchSetting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.groups[id]; ok {
		return l.Group, l.setting, nil
	}
	return batch.Group{}, nil, batch.ErrNotFound
}

// Busy implements [batch.Store].
func (s *Store) Busy(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := map[string]struct{}{}
	for _, r := range s.riders {
		if r.State == batch.Waiting {
			busy[r.Group] = struct{}{}
		}
	}
	for _, b := range s.batches {
		if b.Phase != batch.Ended {
			busy[b.Group] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(busy)), nil
}

// Pending implements [batch.Store].
func (s *Store) Pending(context.Context) ([]batch.Rider, error) {
	return s.some(func(r *rider) bool { return r.State == batch.Waiting || r.State == batch.Sent }), nil
}

// WaitingIn implements [batch.Store].
func (s *Store) WaitingIn(_ context.Context, group string) ([]batch.Rider, error) {
	return s.some(func(r *rider) bool { return r.Group == group && r.State == batch.Waiting }), nil
}

// Begin implements [batch.Store].
func (s *Store) Begin(_ context.Context, b batch.Batch, riders []int64) (batch.Batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.Requests, b.Phase = 0, batch.Intended
	for _, id := range riders {
		if r := s.riders[id]; r != nil && r.State == batch.Waiting {
			r.State, r.Batch = batch.Sent, b.ID
			b.Requests++
		}
	}
	if b.Requests > 0 {
		s.batches = append(s.batches, &b)
	}
	return b, nil
}

// Lines implements [batch.Store].
func (s *Store) Lines(_ context.Context, of string) (map[int64]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := map[int64]int64{}
	for id, r := range s.riders {
		if r.Batch == of && r.body != nil {
			lines[id] = r.Size
		}
	}
	return lines, nil
}

// Body implements [batch.Store].
func (s *Store) Body(_ context.Context, id int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.riders[id]; r != nil && r.body != nil {
		return r.body, nil
	}
	return nil, batch.ErrNotFound
}

// Living implements [batch.Store].
func (s *Store) Living(_ context.Context, of string) (int, error) {
	return len(s.some(func(r *rider) bool { return r.Batch == of && r.State == batch.Sent })), nil
}

// Update implements [batch.Store].
func (s *Store) Update(_ context.Context, b batch.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.find(b.ID)
	if known == nil {
		return batch.ErrNotFound
	}
	b.Cancelled = known.Cancelled
	*known = b
	if b.Phase == batch.Ended {
		for id, r := range s.riders {
			switch {
			case r.Batch != b.ID:
			case r.State == batch.Left:
				delete(s.riders, id)
			default:
				r.body = nil
			}
		}
	}
	return nil
}

func (s *Store) find(id string) *batch.Batch {
	for _, b := range s.batches {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// RequestCancel implements [batch.Store].
func (s *Store) RequestCancel(_ context.Context, project, id string) (batch.Batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.find(id)
	if b == nil || b.Project != project {
		return batch.Batch{}, batch.ErrNotFound
	}
	b.Cancelled = b.Cancelled || b.Phase != batch.Ended
	return *b, nil
}

// Settle implements [batch.Store].
func (s *Store) Settle(_ context.Context, of string, results map[int64]provider.BatchResult) ([]effect.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []effect.Key
	for _, id := range slices.Sorted(maps.Keys(results)) {
		if r := s.riders[id]; r != nil && r.Batch == of && r.State == batch.Sent {
			r.State, r.Result = batch.Answered, results[id]
			keys = append(keys, r.Key)
		}
	}
	return keys, nil
}

// Unsettled implements [batch.Store].
func (s *Store) Unsettled(_ context.Context, of string) ([]int64, error) {
	var ids []int64
	for _, r := range s.some(func(r *rider) bool { return r.Batch == of && r.State == batch.Sent }) {
		ids = append(ids, r.ID)
	}
	return ids, nil
}

// OpenIn implements [batch.Store].
func (s *Store) OpenIn(_ context.Context, group string) (all []batch.Batch, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		if b.Group == group && b.Phase != batch.Ended {
			all = append(all, *b)
		}
	}
	return all, nil
}

// List implements [batch.Store].
func (s *Store) List(_ context.Context, project, before string, limit int) (all []batch.Batch, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	skip := before != ""
	for _, b := range slices.Backward(s.batches) {
		if project != "" && b.Project != project {
			continue
		}
		if !skip && len(all) < limit {
			all = append(all, *b)
		}
		skip = skip && b.ID != before
	}
	return all, nil
}

// Expire implements [batch.Store].
func (s *Store) Expire(_ context.Context, before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.riders, func(_ int64, r *rider) bool {
		of := s.find(r.Batch)
		return (r.State == batch.Answered || r.State == batch.Told) && r.Created.Before(before) &&
			(of == nil || of.Phase == batch.Ended && of.Over.Before(before))
	})
	s.batches = slices.DeleteFunc(s.batches, func(b *batch.Batch) bool { return b.Phase == batch.Ended && b.Over.Before(before) })
	return nil
}
