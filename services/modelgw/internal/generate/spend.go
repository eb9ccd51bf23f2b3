package generate

import (
	"context"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/tokens"
)

// Budgets bounds what is spent within scopes.
type Budgets interface {
	// Reserve takes the tokens that a call may need from the budgets of all scopes; the function that it returns settles with what was spent. It
	// asks for the estimate where a scope has bounds.
	Reserve(ctx context.Context, scopes []string, estimate func() int64) (settle func(tokens int64, cost float64), err error)
}

// Prices are dollars per million tokens by model, `provider/name`.
type Prices map[string]*modelv1.Prices

// Spend reserves what a call may cost from the budgets of its project, its account and its further scopes, and settles with what it did cost. The
// usage gets its cost where the price is known and the provider did not say it.
func Spend(budgets Budgets, prices Prices) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call) (*provider.Response, error) {
			settle, err := budgets.Reserve(ctx, c.scopes(), c.estimate)
			if err != nil {
				return nil, err
			}
			spent, cost := int64(0), 0.0
			defer func() { settle(spent, cost) }()
			response, err := next(ctx, c)
			if err != nil {
				return nil, err
			}
			if usage := response.Output.GetUsage(); usage != nil {
				if price, known := prices[c.Model.FullName()]; known && usage.TotalCost == nil {
					usage.TotalCost = new(chat.Cost(price, usage, c.Model.Capabilities().LongCache))
				}
				spent, cost = usage.GetTotalTokens(), usage.GetTotalCost()
			}
			return response, nil
		}
	}
}

func (c *Call) scopes() []string {
	return append([]string{"projects/" + c.Origin.Project, "accounts/" + c.Model.Kind.Name + "/" + c.Model.Account}, c.Scopes...)
}

// estimate returns the most tokens that a call is likely to take.
func (c *Call) estimate() int64 {
	return c.UnreadTokens + tokens.Messages(c.Messages) + tokens.Tools(c.Tools) + c.Config.GetMaxTokens()
}
