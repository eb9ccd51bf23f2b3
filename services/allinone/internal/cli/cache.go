package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func (a *app) cacheCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "Show or remove cached responses of models",
		Long:  `Calls whose configuration has cache are answered from stored responses: an evaluation that is repeated is not paid for again. Responses are kept in the data directory, or in Redis, until they expire (a week by default) or modelgw.cache_bytes are full. They count for one project, model, conversation, configuration and epoch.`,
		Example: `  evalfleet cache list
  evalfleet cache clear openai/gpt-4o
  evalfleet cache clear --expired`,
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "Show how many responses of each model are stored, and their size; with --json each of them",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.listCache(ctx) })
		},
	}
	var all, expired bool
	clean := &cobra.Command{
		Use:               "clear [MODEL...]",
		ValidArgsFunction: a.complete(offerModels),
		Short:             "Remove the responses of models; they are paid for again when they are needed",
		Example: `  evalfleet cache clear openai/gpt-4o anthropic/claude-opus-5
  evalfleet cache clear --expired
  evalfleet cache clear --all`,
		Args: func(_ *cobra.Command, models []string) error {
			switch {
			case len(models) == 0 && !all && !expired:
				return usage("name a model, or give --all or --expired; evalfleet cache list shows them")
			case len(models) > 0 && all:
				return usage("name models or give --all, not both")
			case slices.Contains(models, ""):
				return usage("a name is empty; give --all for the responses of all models")
			}
			return nil
		},
		RunE: func(c *cobra.Command, models []string) error {
			if len(models) == 0 {
				models = []string{""} // of all
			}
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.clearCache(ctx, models, expired) })
		},
	}
	clean.Flags().BoolVar(&all, "all", false, "the responses of all models of the project")
	clean.Flags().BoolVar(&expired, "expired", false, "only responses that have expired")
	c.AddCommand(list, clean)
	return c
}

func (s *session) listCache(ctx context.Context) error {
	if s.app.json {
		return s.listCacheEntries(ctx)
	}
	sizes, err := s.cache.GetCacheSize(ctx, &modelv1.GetCacheSizeRequest{Parent: s.app.parent()})
	if err != nil {
		return err
	}
	var rows [][]string
	for _, model := range slices.Sorted(maps.Keys(sizes.GetBytes())) {
		size := fmt.Sprintf("%.1f KiB", float64(sizes.GetBytes()[model])/1024)
		rows = append(rows, []string{model, fmt.Sprint(sizes.GetEntries()[model]), fmt.Sprint(sizes.GetExpiredEntries()[model]), size})
	}
	if len(rows) == 0 {
		s.app.note("no cached responses")
		return nil
	}
	s.app.table([]string{"model", "responses", "expired", "size"}, rows)
	return nil
}

func (s *session) listCacheEntries(ctx context.Context) error {
	req := &modelv1.ListCacheEntriesRequest{Parent: s.app.parent(), PageSize: 1000}
	entries, err := page(0, func(token string) ([]*modelv1.CacheEntry, string, error) {
		req.PageToken = token
		r, err := s.cache.ListCacheEntries(ctx, req)
		return r.GetEntries(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	return emitAll(s.app, entries)
}

func (s *session) clearCache(ctx context.Context, models []string, expired bool) error {
	all := &modelv1.ClearCacheResponse{}
	for _, model := range models {
		r, err := s.cache.ClearCache(ctx, &modelv1.ClearCacheRequest{Parent: s.app.parent(), Model: model, ExpiredOnly: expired})
		if err != nil {
			return err
		}
		all.Removed += r.GetRemoved()
	}
	if s.app.json {
		return s.app.emit(all)
	}
	s.app.print("%d cached responses removed", all.GetRemoved())
	return nil
}
