package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func (a *app) batchesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "batches",
		Short: "List or cancel batches of model calls at providers",
		Long:  `Calls whose configuration has batch (docs/batches.md) are sent together, which costs less and takes up to a day. The runs that make them wait meanwhile, also over a restart of the server.`,
		Example: `  evalfleet batches list
  evalfleet batches cancel BATCH`,
	}
	var most int
	list := &cobra.Command{
		Use:   "list",
		Short: "List batches, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.listBatches(ctx, most) })
		},
	}
	list.Flags().IntVar(&most, "limit", 100, "show at most this many; 0 shows all")
	cancel := &cobra.Command{
		Use:   "cancel BATCH...",
		Short: "Have the provider stop batches; the answers that it has are used, and the other calls fail",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error { return s.cancelBatches(ctx, args) })
		},
	}
	c.AddCommand(list, cancel)
	return c
}

func (s *session) listBatches(ctx context.Context, most int) error {
	req := &modelv1.ListBatchesRequest{Parent: s.app.parent(), PageSize: 1000}
	batches, err := page(most, func(token string) ([]*modelv1.Batch, string, error) {
		req.PageToken = token
		r, err := s.batches.ListBatches(ctx, req)
		return r.GetBatches(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	return s.batchTable(batches)
}

func (s *session) cancelBatches(ctx context.Context, ids []string) error {
	var asked []*modelv1.Batch
	for _, id := range ids {
		b, err := s.batches.CancelBatch(ctx, &modelv1.CancelBatchRequest{Name: s.app.name("batches", id)})
		if err != nil {
			return err
		}
		asked = append(asked, b)
	}
	return s.batchTable(asked)
}

func (s *session) batchTable(batches []*modelv1.Batch) error {
	if s.app.json {
		return emitAll(s.app, batches)
	}
	var rows [][]string
	for _, b := range batches {
		rows = append(rows, []string{
			short(b.GetName()), b.GetModel(), batchState(b), fmt.Sprintf("%d of %d", b.GetCompleted(), b.GetRequests()), fmt.Sprint(b.GetFailed()), when(b.GetCreateTime()), cmp.Or(b.GetError(), "–"),
		})
	}
	if len(rows) == 0 {
		s.app.note("no batches")
		return nil
	}
	s.app.table([]string{"batch", "model", "state", "answered", "failed", "since", "error"}, rows)
	return nil
}

// batchState is the state of a batch for people.
func batchState(b *modelv1.Batch) string {
	switch {
	case b.GetEnded() && b.GetCancelled():
		return "cancelled"
	case b.GetEnded():
		return "ended"
	case b.GetCancelled():
		return "is cancelled"
	case b.GetProviderId() == "":
		return "is sent"
	}
	return "in flight"
}
