package generate

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/tokens"
)

// Budgets bounds what is spent within scopes.
type Budgets interface {
	// Reserve takes the tokens that a call may need from the budgets of all scopes; the function that it returns
	// settles with what was spent. It asks for the estimate where a scope has bounds.
	Reserve(ctx context.Context, scopes []string, estimate func() int64) (settle func(tokens int64, cost float64), err error)
	// BoundsCost returns the first of the scopes whose budget bounds dollars; empty where none does.
	BoundsCost(scopes []string) string
}

// Prices are dollars per million tokens by model, `provider/name`.
type Prices map[string]*modelv1.Prices

// Unfinished is what an answer took that did not come to its end: what the provider has said of it, or else an
// estimate, input and a token for each piece. Output is said at the end, so that as many tokens count as pieces came.
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

// Spend refuses a call that [Affordable] refuses, reserves what a call may cost from the budgets of its project, its
// account and its further scopes, and settles with what it did cost, streams that were left before their end included.
// An answer whose provider says nothing of usage, or what cannot be, is settled with an estimate, which it does not
// tell. The usage gets its cost where the price is known and the provider did not say it.
func Spend(budgets Budgets, prices Prices) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			if err := Affordable(budgets, prices, c); err != nil {
				return nil, err
			}
			settle, err := budgets.Reserve(ctx, c.scopes(), c.estimate)
			if err != nil {
				return nil, err
			}
			var taken *modelv1.ModelUsage
			defer func() { settle(taken.GetTotalTokens(), taken.GetTotalCost()) }()
			response, err := next(ctx, c, o)
			if err == nil && !response.BrokenOff {
				o.unfinished = chat.AddUsage(o.unfinished, c.guess(response.Output))
			}
			prices.apply(c, "", o.unfinished)
			taken = o.unfinished
			if err != nil {
				return nil, err
			}
			prices.apply(c, response.Output.GetFallback().GetFallbackModel(), response.Output.GetUsage())
			if !response.BrokenOff { // Else it is counted already.
				taken = chat.AddUsage(taken, response.Output.GetUsage())
			}
			return response, nil
		}
	}
}

// Affordable fails with FAILED_PRECONDITION PRICE_UNKNOWN where a budget of a call bounds dollars and the price of the
// model or of a fallback model is not known: it would bound nothing.
func Affordable(budgets Budgets, prices Prices, c *Call) error {
	models := []string{c.Model.FullName()}
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

// apply sets the cost of usage, where the price of the model that answered is known and the provider did not give the
// cost. Fallback is the fallback model that answered; empty for the model that was asked.
func (p Prices) apply(c *Call, fallback string, usage *modelv1.ModelUsage) {
	model := c.Model.FullName()
	if fallback != "" {
		model = c.fallback(fallback)
	}
	price, known := p[model]
	if known && usage != nil && usage.TotalCost == nil {
		usage.TotalCost = new(chat.Cost(price, usage, c.Model.Capabilities().LongCache))
	}
}

// fallback returns the full name of a fallback model, which is of the same provider.
func (c *Call) fallback(name string) string { return c.Model.Kind.Name + "/" + name }

func (c *Call) scopes() []string {
	return append([]string{resource.Project(c.Origin.Project), "accounts/" + c.Model.Kind.Name + "/" + c.Model.Account}, c.Scopes...)
}

// guess returns what an answer is likely to have taken; nil where its provider says that, and for a refusal, for which
// nothing was generated.
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
