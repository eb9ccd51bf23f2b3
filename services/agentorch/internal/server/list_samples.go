package server

import (
	"context"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// ListSamples lists an evaluation's samples.
func (s *Evals) ListSamples(ctx context.Context, req *agentv1.ListSamplesRequest) (*agentv1.ListSamplesResponse, error) {
	if _, err := resource.Parse("parent", req.GetParent(), "evals"); err != nil {
		return nil, err
	}
	page, err := resource.PageOf(req)
	if err != nil {
		return nil, err
	}
	from, err := page.AfterNumber() // number of slots before the page
	if err != nil {
		return nil, err
	}
	samples, err := s.deps.Live.Samples(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	resp, size := &agentv1.ListSamplesResponse{}, 0
	for i := from; i < int64(samples.Len()); i++ {
		r := samples.At(int(i))
		if len(req.GetStates()) > 0 && !slices.Contains(req.GetStates(), r.GetState()) {
			continue
		}
		if !req.GetContent() {
			r = redact.Content(r)
		}
		size += proto.Size(r)
		if n := len(resp.GetSamples()); n == page.Size || n > 0 && size > journal.PageBytes {
			resp.NextPageToken = page.Token(strconv.FormatInt(i, 10))
			break
		}
		resp.Samples = append(resp.Samples, r)
	}
	return resp, nil
}
