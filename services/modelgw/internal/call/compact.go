package call

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Compact shortens a conversation. A request with a key attaches to the call of that key.
func (c *Calls) Compact(ctx context.Context, r *modelv1.CompactRequest) (*modelv1.CompactResponse, error) {
	if chat.Batch(r.GetConfig()) != nil {
		return nil, rpcerr.InvalidField("config.batch", "a compaction does not travel in a batch; leave batch out")
	}
	w, err := c.plan(&modelv1.GenerateRequest{
		Parent: r.GetParent(), RequestId: r.GetRequestId(), Attribution: r.GetAttribution(), Model: r.GetModel(), Account: r.GetAccount(),
		BaseUrl: r.GetBaseUrl(), ModelArgsJson: r.GetModelArgsJson(), Messages: r.GetMessages(), Prefix: r.GetPrefix(), Tools: r.GetTools(),
		Config: r.GetConfig(), Timeout: r.GetTimeout(), RecordCall: r.GetRecordCall(), RecordFailedCall: r.GetRecordFailedCall(),
		Fallbacks: new(false), // Only the model's own provider reads what it compacted.
	})
	if err != nil {
		return nil, err
	}
	model := w.call.Model
	_, compacts := model.Provider.(provider.Compactor)
	if !compacts || !provider.CapabilitiesOf(model.Provider, w.call.Config).Features.GetCompaction() {
		return nil, provider.NoCompaction(model.FullName(), "has no compaction of its own", nil)
	}
	w.call.Compact = new(r.GetInstructions())
	w.call.Config = chat.Without(w.call.Config, []string{"cache"}) // The response cache keeps answers of models.
	return do(ctx, c, w, nil, c.compacted)
}

// compacted makes the call of a compaction.
func (c *Calls) compacted(ctx context.Context, w *work, call *generate.Call, outcome *generate.Outcome) (*modelv1.CompactResponse, error) {
	call.Sink = nil // Its key has no stream.
	response, err := c.run(ctx, call, outcome)
	if err != nil {
		return nil, err
	}
	answer := &modelv1.CompactResponse{
		Messages:       response.Compacted,
		Usage:          response.Output.GetUsage(),
		Timing:         outcome.Timing(),
		Call:           response.Call,
		Warnings:       append(w.warnings(), response.Warnings...),
		FailedAttempts: outcome.FailedAttempts(),
	}
	answer.Call, answer.Warnings = fitting(answer, answer.GetCall(), answer.GetFailedAttempts(), answer.GetWarnings())
	return answer, nil
}
