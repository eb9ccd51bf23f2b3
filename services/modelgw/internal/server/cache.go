package server

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/cache"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

// entries yields the cache entries of a project that follow a key.
func (s *Server) entries(ctx context.Context, project string, after cache.Key) iter.Seq2[cache.Info, error] {
	return s.Cache.List(ctx, respcache.Group(project, ""), after)
}

// GetCacheSize implements CacheService.
func (s *Server) GetCacheSize(ctx context.Context, r *modelv1.GetCacheSizeRequest) (*modelv1.GetCacheSizeResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	sizes, now := &modelv1.GetCacheSizeResponse{Bytes: map[string]int64{}, Entries: map[string]int64{}, ExpiredEntries: map[string]int64{}}, time.Now()
	for info, err := range s.entries(ctx, project, cache.Key{}) {
		if err != nil {
			return nil, err
		}
		model := respcache.Model(project, info.Key.Group)
		wanted := len(r.GetModels()) == 0 || slices.ContainsFunc(r.GetModels(), func(part string) bool { return strings.Contains(model, part) })
		if !wanted {
			continue
		}
		sizes.Bytes[model] += info.Size
		sizes.Entries[model]++
		if info.Expired(now) {
			sizes.ExpiredEntries[model]++
		}
	}
	return sizes, nil
}

// ListCacheEntries implements CacheService.
func (s *Server) ListCacheEntries(ctx context.Context, r *modelv1.ListCacheEntriesRequest) (*modelv1.ListCacheEntriesResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	after, err := entryAt(project, page.After)
	if err != nil {
		return nil, err
	}
	answer := &modelv1.ListCacheEntriesResponse{}
	var found []*modelv1.CacheEntry
	for info, err := range s.entries(ctx, project, after) {
		if err != nil {
			return nil, err
		}
		model := respcache.Model(project, info.Key.Group)
		if !picked(info, model, r.GetModels(), r.GetExpiredOnly()) {
			continue
		}
		entry := &modelv1.CacheEntry{Id: info.Key.ID, Model: model, Size: info.Size}
		if !info.Expires.IsZero() {
			entry.ExpireTime = timestamppb.New(info.Expires)
		}
		if found = append(found, entry); len(found) > page.Size {
			break
		}
	}
	answer.Entries, answer.NextPageToken = resource.Cut(page, found, entryPosition)
	return answer, nil
}

// entryPosition is the position of an entry in a list. Names of models may have blanks, ids have none.
func entryPosition(e *modelv1.CacheEntry) string { return e.GetModel() + " " + e.GetId() }

// entryAt is the reverse of entryPosition; no position is the zero key.
func entryAt(project, position string) (cache.Key, error) {
	if position == "" {
		return cache.Key{}, nil
	}
	blank := strings.LastIndexByte(position, ' ')
	if blank < 0 {
		return cache.Key{}, resource.Unreadable("page_token")
	}
	return cache.Key{Group: respcache.Group(project, position[:blank]), ID: position[blank+1:]}, nil
}

func picked(info cache.Info, model string, models []string, expiredOnly bool) bool {
	return (len(models) == 0 || slices.Contains(models, model)) && (!expiredOnly || info.Expired(time.Now()))
}

// ClearCache implements CacheService.
func (s *Server) ClearCache(ctx context.Context, r *modelv1.ClearCacheRequest) (*modelv1.ClearCacheResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var models []string
	if r.GetModel() != "" {
		models = []string{r.GetModel()}
	}
	ids := make(map[string]struct{}, len(r.GetIds())) // There may be as many as entries.
	for _, id := range r.GetIds() {
		ids[id] = struct{}{}
	}
	var keys []cache.Key
	for info, err := range s.entries(ctx, project, cache.Key{}) {
		if err != nil {
			return nil, err
		}
		_, listed := ids[info.Key.ID]
		if (listed || len(ids) == 0) && picked(info, respcache.Model(project, info.Key.Group), models, r.GetExpiredOnly()) {
			keys = append(keys, info.Key)
		}
	}
	removed, err := s.Cache.Delete(ctx, keys...)
	if err != nil {
		return nil, err
	}
	return &modelv1.ClearCacheResponse{Removed: int64(removed)}, nil
}
