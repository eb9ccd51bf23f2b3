package call

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prefixcache"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// fallbacks are the models that may answer a request in place of its own, in their order. A fallback changes what an
// evaluation measures: there it needs to be allowed. A call in a batch has none, since its caller has chosen the price.
func (c *Calls) fallbacks(r *modelv1.GenerateRequest) []string {
	now := c.deps.Settings.Get()
	allowed := r.GetAttribution().GetEval() == "" || now.EvaluationFallbacks
	if r.Fallbacks != nil {
		allowed = r.GetFallbacks()
	}
	if !allowed || chat.Batch(r.GetConfig()) != nil {
		return nil
	}
	return now.Fallbacks[r.GetModel()]
}

// planned prepares the call of a request for its model, which is open unless missing says why not: then for the first
// fallback that takes the request. Asked and client are as in prepared.
func (c *Calls) planned(
	r *modelv1.GenerateRequest, asked prefixcache.Conversation, ref provider.Ref, model *provider.Model, missing error, fallbacks []string, client bool,
) (*work, error) {
	if missing == nil {
		w, err := c.prepared(r, asked, ref, model, len(fallbacks), client)
		if err != nil {
			return nil, err
		}
		w.fallbacks = fallbacks
		return w, nil
	}
	var others []string
	for i, name := range fallbacks {
		left := fallbacks[i+1:]
		w, unfit := c.planOf(r, asked, provider.Ref{Project: ref.Project, Model: name}, len(left), client)
		if unfit == nil {
			w.fallbacks, w.missing = left, missing
			return w, nil
		}
		others = append(others, cannot(name, unfit))
	}
	return nil, alsoFailed(missing, others)
}

// cannot says why a fallback was not called.
func cannot(name string, why error) string { return fmt.Sprintf("%s cannot: %v", name, why) }

// answerOr sends the call of a work through the pipeline, and if its model cannot answer, those of its fallbacks in
// turn. It returns the work that was answered. If none answers, the error is the first.
func (c *Calls) answerOr(ctx context.Context, w *work, call *generate.Call, outcome *generate.Outcome) (*modelv1.GenerateResponse, *work, error) {
	asked := call.Model.FullName()
	if w.missing != nil {
		asked = w.request.GetModel()
	}
	answer, err := c.answer(ctx, call, outcome)
	if err == nil {
		if w.missing != nil {
			noteFallback(answer, asked, w.missing)
		}
		return answer, w, nil
	}
	first, why, model := err, err, call.Model.FullName()
	var others []string
	for i, name := range w.fallbacks {
		if !generate.Curable(err) || ctx.Err() != nil || call.Committed && outcome.Streamed() {
			break
		}
		next, unfit := c.planOf(w.request, w.asked, provider.Ref{Project: call.Origin.Project, Model: name}, len(w.fallbacks)-i-1, call.Client)
		if unfit != nil {
			others = append(others, cannot(name, unfit))
			continue
		}
		own := next.call
		own.Sink, own.OnRetry, own.Origin, own.Committed, own.MaxWait = call.Sink, call.OnRetry, call.Origin, call.Committed, call.MaxWait
		of := outcome.Next()
		answer, err = c.answer(ctx, &own, of)
		outcome.Follow(model, why, of)
		if err == nil {
			answer.Timing, answer.FailedAttempts = outcome.Timing(), outcome.FailedAttempts()
			noteFallback(answer, asked, first)
			c.deps.Logger.WarnContext(ctx, "a fallback answered", "model", asked, "fallback", name, "reason", rpcerr.ReasonName(rpcerr.Reason(first)), "request_id", call.Origin.LogID(ctx))
			return fitted(answer), next, nil
		}
		if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_MODEL_REFUSED) { // It is an answer.
			return nil, next, err
		}
		model, why = name, err
		others = append(others, fmt.Sprintf("%s: %v", name, err))
	}
	if ctx.Err() != nil {
		return nil, w, err
	}
	return nil, w, alsoFailed(first, others)
}

// maxSaid bounds what a note or an error repeats of another error, in bytes.
const maxSaid = 500

// noteFallback notes in an answer that it is a fallback's.
func noteFallback(answer *modelv1.GenerateResponse, asked string, why error) {
	if output := answer.GetOutput(); output.GetFallback() == nil {
		output.Fallback = &modelv1.ModelFallback{Model: asked, FallbackModel: answer.GetModel(), Count: 1}
	}
	answer.Warnings = append(answer.Warnings, fmt.Sprintf("%s answered in place of %s: %s", answer.GetModel(), asked, headtail.Cut(why.Error(), maxSaid)))
}

// alsoFailed is an error that says which fallbacks did not answer either.
func alsoFailed(err error, others []string) error {
	fault, ok := rpcerr.As(err)
	if !ok || len(others) == 0 {
		return err
	}
	told := *fault
	told.Message = fmt.Sprintf("%s; its fallbacks did not answer either: %s", fault.Message, headtail.Cut(strings.Join(others, "; "), 2*maxSaid))
	return &told
}

// planOf prepares the call of a request for a fallback. Asked, left and client are as in prepared. The answer of a
// client of an endpoint has no place for the options that the fallback ignores: such a fallback cannot take its
// request, as the requested model could not.
func (c *Calls) planOf(r *modelv1.GenerateRequest, asked prefixcache.Conversation, ref provider.Ref, left int, client bool) (*work, error) {
	model, err := c.deps.Registry.Open(ref)
	if err != nil {
		return nil, err
	}
	if client {
		if ignored := provider.OptionsSet(r.GetConfig(), provider.CapabilitiesOf(model.Provider, r.GetConfig()).Ignored); len(ignored) > 0 {
			return nil, rpcerr.CapabilityUnsupported(ignored[0], "it does not take %s", strings.Join(ignored, ", "))
		}
	}
	return c.prepared(r, asked, ref, model, left, client)
}

// ofAnother removes from a configuration what is meant for the API of another provider.
func ofAnother(c *modelv1.GenerateConfig) (*modelv1.GenerateConfig, []provider.Unsent) {
	var unsent []provider.Unsent
	const why = "which is of another provider than the requested model"
	if c.ExtraBodyJson != nil {
		c.ExtraBodyJson, unsent = nil, append(unsent, provider.Unsent{Option: "extra_body", Why: why})
	}
	if c.ExtraHeaders != nil {
		c.ExtraHeaders, unsent = nil, append(unsent, provider.Unsent{Option: "extra_headers", Why: why})
	}
	return c, slices.Clip(unsent)
}

// lowEfforts are the efforts that some models do not have, and the least that all have that reason by efforts.
var lowEfforts = []string{"none", "minimal", "low"}

// leastEffort returns a configuration, which is not modified, with the least effort of a model in place of one below
// that. Where that is not known, `none` is left out.
func leastEffort(c *modelv1.GenerateConfig, caps provider.Capabilities) (*modelv1.GenerateConfig, []provider.Unsent) {
	asked, least := slices.Index(lowEfforts, c.GetReasoningEffort()), slices.Index(lowEfforts, caps.LeastEffort)
	switch {
	case asked == 0 && least < 0:
		const option = "reasoning_effort"
		return chat.Without(c, []string{option}), []provider.Unsent{{Option: option, Why: "which is not known to have the effort none"}}
	case asked >= 0 && asked < least:
		return chat.Merge(c, &modelv1.GenerateConfig{ReasoningEffort: &lowEfforts[least]}), nil
	default:
		return c, nil
	}
}
