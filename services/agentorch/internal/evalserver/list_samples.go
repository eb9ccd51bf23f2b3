package evalserver

import (
	"context"
	"slices"
	"strconv"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// ListSamples lists an evaluation's samples.
func (s *Server) ListSamples(ctx context.Context, req *agentv1.ListSamplesRequest) (*agentv1.ListSamplesResponse, error) {
	if _, err := resource.Parse("parent", req.GetParent(), "evals"); err != nil {
		return nil, err
	}
	position, err := resource.Position(req.GetPageToken(), req)
	if err != nil {
		return nil, err
	}
	from := 0
	if position != "" {
		if from, err = strconv.Atoi(position); err != nil || from < 0 {
			return nil, rpcerr.InvalidField("page_token", "it cannot be read; begin again without it")
		}
	}
	state, samples, err := s.load(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	resp := &agentv1.ListSamplesResponse{}
	for i := from; i < len(state.Slots); i++ {
		slot := &state.Slots[i]
		r := state.Resource(slot, samples[slot.Sample])
		if len(req.GetStates()) > 0 && !slices.Contains(req.GetStates(), r.GetState()) {
			continue
		}
		if len(resp.GetSamples()) == resource.PageSize(req.GetPageSize()) {
			resp.NextPageToken = resource.PageToken(strconv.Itoa(i), req)
			break
		}
		resp.Samples = append(resp.Samples, r)
	}
	return resp, nil
}
