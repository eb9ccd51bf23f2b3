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

// open opens the model of a request, or its first fallback whose provider is configured.
func (c *Calls) open(ref provider.Ref, fallbacks []string) (model *provider.Model, used provider.Ref, left []string, missing, err error) {
	model, err = c.deps.Registry.Open(ref)
	for err != nil && len(fallbacks) > 0 && generate.Curable(err) {
		if missing == nil {
			missing = err
		}
		ref = provider.Ref{Project: ref.Project, Model: fallbacks[0]}
		fallbacks = fallbacks[1:]
		model, err = c.deps.Registry.Open(ref)
	}
	if err != nil && missing != nil {
		err = missing
	}
	return model, ref, fallbacks, missing, err
}

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
		next, unfit := c.planOf(w, name, len(w.fallbacks)-i-1)
		if unfit != nil {
			others = append(others, fmt.Sprintf("%s cannot: %v", name, unfit))
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
			c.deps.Logger.WarnContext(ctx, "a fallback answered", "model", asked, "fallback", name, "reason", rpcerr.ReasonName(rpcerr.Reason(first)), "request_id", call.Origin.RequestID)
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

// planOf prepares the call of a fallback of a work. Left is the number of fallbacks after it.
func (c *Calls) planOf(w *work, name string, left int) (*work, error) {
	ref := provider.Ref{Project: w.call.Origin.Project, Model: name}
	model, err := c.deps.Registry.Open(ref)
	if err != nil {
		return nil, err
	}
	return c.prepared(w.request, w.asked, ref, model, left, w.call.Addresses)
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
