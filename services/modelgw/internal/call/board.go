package call

import (
	"context"
	"net/http"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/seconds"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// board has a call travel in batches, if its configuration asks for that. A model without a batch API is refused: the
// call would cost more than its caller expects.
func (c *Calls) board(w *work) error {
	config, model := w.call.Config, w.call.Model
	schedule := chat.Batch(config)
	if schedule == nil {
		asked := config.GetBatch()
		if asked.GetSize() > 0 || asked.GetMaxSize() > 0 || asked.GetMaxBatches() > 0 ||
			asked.GetMaxConsecutiveCheckFailures() > 0 || asked.GetSendDelay() != nil || asked.GetTick() != nil {
			return rpcerr.InvalidField("config.batch", "has a schedule and is not enabled; set enabled, or leave the schedule out")
		}
		return nil
	}
	support := provider.CapabilitiesOf(model.Provider, config).Batch
	if support == nil {
		return rpcerr.In("config.batch", rpcerr.CapabilityUnsupported("batch", "%s has no batch API here; leave batch out", model.FullName()))
	}
	ride := batch.Call{
		Model: model, Key: w.key, Setting: schedule, Defer: w.request.GetDeferBatched(),
		Ref: w.ref,
	}
	if config.AttemptTimeout != nil {
		ride.Timeout = seconds.Duration(config.GetAttemptTimeout())
	}
	w.call.Batched = c.deps.Batches.Ride(ride)
	w.unsent = append(w.unsent, unbatched(config, support)...)
	w.call.Config = chat.Without(config, support.Dropped)
	return nil
}

// unbatched are options of a configuration that have no effect in a batch.
func unbatched(config *modelv1.GenerateConfig, support *provider.BatchSupport) (all []provider.Unsent) {
	for name := range config.GetExtraHeaders().GetValues() {
		if !slices.Contains(support.Headers, http.CanonicalHeaderKey(name)) {
			all = append(all, provider.Unsent{Option: "extra_headers", Why: "whose batches do not take all of them"})
			break
		}
	}
	for _, option := range provider.OptionsSet(config, support.Dropped) {
		all = append(all, provider.Unsent{Option: option, Why: "which does not take it in a batch"})
	}
	if config.GetStreamIdleTimeout() != 0 {
		all = append(all, provider.Unsent{Option: "stream_idle_timeout", Why: "whose answers in batches are not streamed"})
	}
	return all
}

// unpriced warns that the cost of a batched call will not be known.
func unpriced(w *work) []string {
	if w.call.Batched == nil {
		return nil
	}
	if w.call.Model.Capabilities().Batch.PriceShare > 0 {
		return nil
	}
	return []string{"the price of a batch is not known for " + w.call.Model.FullName() + "; the cost of the call is left out"}
}

// past reads what is known of a batched call from earlier requests with its key. It fails with BATCH_PENDING for a
// deferred call that still waits.
func past(ctx context.Context, w *work) (p batch.Past, err error) {
	if w.call.Batched == nil {
		return p, nil
	}
	if p, err = w.call.Batched.Past(ctx); err != nil {
		return p, err
	}
	return p, p.Pending
}
