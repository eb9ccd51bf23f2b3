package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/cache"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

// entries returns the cache entries of a project.
func (s *Server) entries(ctx context.Context, parent string) (project string, infos []cache.Info, err error) {
	project, err = resource.ParseProject("parent", parent)
	if err != nil {
		return "", nil, err
	}
	infos, err = s.Cache.List(ctx, respcache.Group(project, ""))
	return project, infos, err
}

// GetCacheSize implements CacheService.
func (s *Server) GetCacheSize(ctx context.Context, r *modelv1.GetCacheSizeRequest) (*modelv1.GetCacheSizeResponse, error) {
	project, infos, err := s.entries(ctx, r.GetParent())
	if err != nil {
		return nil, err
	}
	sizes, now := &modelv1.GetCacheSizeResponse{Bytes: map[string]int64{}, Entries: map[string]int64{}, ExpiredEntries: map[string]int64{}}, time.Now()
	for _, info := range infos {
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
	project, infos, err := s.entries(ctx, r.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := resource.PageOf(r)
	if err != nil {
		return nil, err
	}
	answer, last := &modelv1.ListCacheEntriesResponse{}, ""
	for _, info := range infos {
		model := respcache.Model(project, info.Key.Group)
		place := model + " " + info.Key.ID
		if !picked(info, model, r.GetModels(), r.GetExpiredOnly()) || place <= page.After {
			continue
		}
		if len(answer.GetEntries()) == page.Size {
			answer.NextPageToken = page.Token(last)
			break
		}
		entry := &modelv1.CacheEntry{Id: info.Key.ID, Model: model, Size: info.Size}
		if !info.Expires.IsZero() {
			entry.ExpireTime = timestamppb.New(info.Expires)
		}
		answer.Entries, last = append(answer.Entries, entry), place
	}
	return answer, nil
}

func picked(info cache.Info, model string, models []string, expiredOnly bool) bool {
	return (len(models) == 0 || slices.Contains(models, model)) && (!expiredOnly || info.Expired(time.Now()))
}

// ClearCache implements CacheService.
func (s *Server) ClearCache(ctx context.Context, r *modelv1.ClearCacheRequest) (*modelv1.ClearCacheResponse, error) {
	project, infos, err := s.entries(ctx, r.GetParent())
	if err != nil {
		return nil, err
	}
	var models []string
	if r.GetModel() != "" {
		models = []string{r.GetModel()}
	}
	var keys []cache.Key
	for _, info := range infos {
		listed := len(r.GetIds()) == 0 || slices.Contains(r.GetIds(), info.Key.ID)
		if listed && picked(info, respcache.Model(project, info.Key.Group), models, r.GetExpiredOnly()) {
			keys = append(keys, info.Key)
		}
	}
	removed, err := s.Cache.Delete(ctx, keys...)
	if err != nil {
		return nil, err
	}
	return &modelv1.ClearCacheResponse{Removed: int64(removed)}, nil
}
