package generate

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/tokens"
)

// Budgets bounds the usage within scopes.
type Budgets interface {
	// Reserve reserves the tokens that a call may need in the budgets of all scopes; the returned function settles the
	// actual usage. It calls for the estimate only if a scope has bounds.
	Reserve(ctx context.Context, scopes []string, estimate func() int64) (settle func(taken *modelv1.ModelUsage), err error)
	// BoundsCost returns the first of the scopes whose budget bounds dollars; empty if there is none.
	BoundsCost(scopes []string) string
}

// Prices are dollars per million tokens by model, `provider/name`.
type Prices map[string]*modelv1.Prices

// Unfinished is the usage of an answer that did not reach its end: the provider's report, or else an estimate of the
// input and a token for each piece. Output is reported at the end, so at least as many tokens as pieces count.
func Unfinished(said *modelv1.ModelUsage, input, pieces int64) *modelv1.ModelUsage {
	if said == nil {
		return &modelv1.ModelUsage{InputTokens: input, OutputTokens: pieces, TotalTokens: input + pieces}
	}
	taken := proto.CloneOf(said)
	if more := pieces - taken.GetOutputTokens(); more > 0 {
		taken.OutputTokens += more
		taken.TotalTokens += more
	}
	return taken
}

// Spend refuses a call that [Affordable] refuses, reserves its estimated cost in the budgets of its project, its
// account and its further scopes, and settles its actual cost, abandoned streams included. An answer without usage, or
// with impossible usage, is settled with an estimate that is not part of the answer. Spend sets the cost of the usage
// if the price is known and the provider did not report the cost.
func Spend(budgets Budgets, pricesNow func() Prices) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			prices := pricesNow()
			if err := Affordable(budgets, prices, c); err != nil {
				return nil, err
			}
			settle, err := budgets.Reserve(ctx, c.scopes(), c.estimate)
			if err != nil {
				return nil, err
			}
			var taken *modelv1.ModelUsage
			defer func() { settle(taken) }()
			response, err := next(ctx, c, o)
			if err == nil && !response.BrokenOff {
				o.unfinished = chat.AddUsage(o.unfinished, c.guess(response.Output))
			}
			prices.apply(c, "", o.unfinished)
			taken = o.unfinished
			if err != nil {
				return nil, err
			}
			if prices.applyBilled(c, response.Output.GetFallback().GetFallbackModel(), response.Output.GetUsage(), response.Billing) {
				response.Warnings = append(response.Warnings, fmt.Sprintf(
					"the cost is unknown: %s answered in the mode %s, which has prices of its own", c.Model.FullName(), response.Billing.Mode))
			}
			if !response.BrokenOff { // Else it is counted already.
				taken = chat.AddUsage(taken, response.Output.GetUsage())
			}
			return response, nil
		}
	}
}

// Affordable fails with FAILED_PRECONDITION PRICE_UNKNOWN if a budget of a call bounds dollars and the price of the
// model or of a fallback model is unknown: the budget would bound nothing.
func Affordable(budgets Budgets, prices Prices, c *Call) error {
	models := []string{c.Model.FullName()}
	if c.Batched != nil && c.share() == 0 {
		if scope := budgets.BoundsCost(c.scopes()); scope != "" {
			return rpcerr.PriceUnknown(models[0]+" in a batch", "the budget of "+scope)
		}
	}
	for _, fallback := range c.Config.GetFallbackModels().GetValues() {
		models = append(models, c.fallback(fallback))
	}
	for _, model := range models {
		if _, known := prices[model]; known {
			continue
		}
		if scope := budgets.BoundsCost(c.scopes()); scope != "" {
			return rpcerr.PriceUnknown(model, "the budget of "+scope)
		}
	}
	return nil
}

// applyBilled is apply for an answer that says more of its price. It reports whether the cost is unknown for the mode
// of the answer.
func (p Prices) applyBilled(c *Call, fallback string, usage *modelv1.ModelUsage, billing dialect.Billing) (unknown bool) {
	priced := usage == nil || usage.TotalCost != nil
	switch {
	case priced:
	case billing.Mode != "":
		return true
	case billing.LongCacheWrite == nil:
		p.apply(c, fallback, usage)
	default:
		if price, known := p[c.answered(fallback)]; known && c.share() > 0 {
			usage.TotalCost = new(c.share() * (chat.Cost(price, usage, false) + chat.LongWriteCost(price, usage, *billing.LongCacheWrite)))
		}
	}
	return false
}

// apply sets the cost of usage if the price of the model that answered is known and the provider did not report the
// cost. A call in a batch has the provider's share of the price. Fallback is the fallback model that answered; empty
// for the requested model.
func (p Prices) apply(c *Call, fallback string, usage *modelv1.ModelUsage) {
	price, known := p[c.answered(fallback)]
	if known && usage != nil && usage.TotalCost == nil && c.share() > 0 {
		usage.TotalCost = new(c.share() * chat.Cost(price, usage, c.Model.Constant().LongCache))
	}
}

// share is the part of the plain price that the call costs; 0 if that is not known of batches.
func (c *Call) share() float64 {
	if c.Batched == nil {
		return 1
	}
	return c.Model.Capabilities().Batch.PriceShare
}

// answered returns the full name of the model that answered: a fallback model, or the requested one where that is
// empty.
func (c *Call) answered(fallback string) string {
	if fallback == "" {
		return c.Model.FullName()
	}
	return c.fallback(fallback)
}

// fallback returns the full name of a fallback model, which is of the same provider.
func (c *Call) fallback(name string) string { return c.Model.Kind.Name + "/" + name }

func (c *Call) scopes() []string {
	return append([]string{resource.Project(c.Origin.Project), "accounts/" + c.Model.Kind.Name + "/" + c.Model.Account}, c.Scopes...)
}

// guess returns the likely usage of an answer; nil if its provider reports it, and for a refusal, for which nothing was
// generated.
func (c *Call) guess(output *modelv1.ModelOutput) *modelv1.ModelUsage {
	if output.GetUsage() != nil {
		return nil
	}
	var said []*modelv1.ChatMessage
	for _, choice := range output.GetChoices() {
		if reason := choice.GetStopReason(); reason == modelv1.StopReason_STOP_REASON_MODEL_LENGTH || reason == modelv1.StopReason_STOP_REASON_CONTENT_FILTER {
			return nil
		}
		said = append(said, choice.GetMessage())
	}
	return Unfinished(nil, c.Tokens()+tokens.Tools(c.Tools), tokens.Messages(said))
}

// estimate returns the most tokens that a call is likely to take.
func (c *Call) estimate() int64 {
	return chat.SumTokens(c.UnreadTokens, c.Tokens(), tokens.Tools(c.Tools), c.Config.GetMaxTokens())
}
