package generate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
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
	if !Counts(said) {
		return &modelv1.ModelUsage{InputTokens: input, OutputTokens: pieces, TotalTokens: input + pieces}
	}
	taken := proto.CloneOf(said)
	if more := pieces - taken.GetOutputTokens(); more > 0 {
		taken.OutputTokens += more
		taken.TotalTokens += more
	}
	return taken
}

// Counts reports whether a provider's report of usage, which may be nil, has any tokens.
func Counts(said *modelv1.ModelUsage) bool {
	return chat.InputTokens(said) > 0 || said.GetOutputTokens() > 0 || said.GetTotalTokens() > 0
}

// Spend refuses a call that [Affordable] refuses, reserves its estimated cost in the budgets of its project, its
// account and its further scopes, and settles its actual cost, abandoned streams included. An answer without usage, or
// with impossible or empty usage, is settled with an estimate that is not part of the answer. Spend sets the cost of
// the usage if the price is known and the provider did not report the cost.
func Spend(budgets Budgets, pricesNow func() Prices) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			prices, scopes := pricesNow(), c.scopes()
			if err := affordable(budgets, scopes, prices, c); err != nil {
				return nil, err
			}
			settle, err := budgets.Reserve(ctx, scopes, c.estimate)
			if err != nil {
				return nil, err
			}
			var taken *modelv1.ModelUsage
			defer func() { settle(taken) }()
			response, err := next(ctx, c, o)
			if err == nil && !response.BrokenOff {
				if guess := c.guess(response.Output); guess != nil {
					o.unfinished = append(o.unfinished, guess)
				}
			}
			for _, usage := range o.unfinished {
				prices.apply(c, "", usage, dialect.Billing{Mode: c.mode()})
			}
			taken = o.unfinishedUsage()
			if err != nil {
				return nil, err
			}
			if prices.apply(c, response.Output.GetFallback().GetFallbackModel(), response.Output.GetUsage(), response.Billing) {
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
// model or of a fallback model, in the mode that the call asks for, is unknown: the budget would bound nothing.
func Affordable(budgets Budgets, prices Prices, c *Call) error {
	return affordable(budgets, c.scopes(), prices, c)
}

func affordable(budgets Budgets, scopes []string, prices Prices, c *Call) error {
	scope := budgets.BoundsCost(scopes)
	if scope == "" {
		return nil
	}
	for _, fallback := range append([]string{""}, c.Config.GetFallbackModels().GetValues()...) {
		if model := c.answered(fallback); prices.asked(c, model) == nil {
			return rpcerr.PriceUnknown(model, c.how(), "the budget of "+scope)
		}
	}
	return nil
}

// Asked returns the prices of a call in the mode that it asks for; nil if they are not known, or what its batch costs
// is not.
func (p Prices) Asked(c *Call) *modelv1.Prices { return p.asked(c, c.Model.FullName()) }

func (p Prices) asked(c *Call, model string) *modelv1.Prices {
	mode := c.mode()
	if c.Batched != nil && (c.share() == 0 || mode != "") {
		return nil
	}
	return p.in(model, mode)
}

// in returns the prices of a model in a mode; nil if they are not known.
func (p Prices) in(model, mode string) *modelv1.Prices {
	if mode == "" {
		return p[model]
	}
	return p[model].GetModes()[mode]
}

// mode is the mode of the provider that the call asks for.
func (c *Call) mode() string {
	if moded, ok := c.Model.Provider.(provider.Moded); ok && c.Mode == "" {
		return moded.Mode(c.Config)
	}
	return c.Mode
}

// how says for people in which way the call uses its model; empty for the plain one.
func (c *Call) how() string {
	var ways []string
	if mode := c.mode(); mode != "" {
		ways = append(ways, "in the mode "+mode)
	}
	if c.Batched != nil {
		ways = append(ways, "in a batch")
	}
	return strings.Join(ways, " ")
}

// apply sets the cost of usage if the price of the model that answered, in the mode in which it did, is known and the
// provider did not report the cost. A call in a batch has the provider's share of the price. Fallback is the fallback
// model that answered; empty for the requested model. It reports whether the cost is unknown for the mode.
func (p Prices) apply(c *Call, fallback string, usage *modelv1.ModelUsage, billing dialect.Billing) (unknown bool) {
	model := c.answered(fallback)
	if usage == nil || usage.TotalCost != nil || c.share() == 0 {
		return false
	}
	passes := billing.Passes
	if len(passes) == 0 {
		passes = []*modelv1.ModelUsage{usage}
	}
	largest := slices.MaxFunc(passes, func(a, b *modelv1.ModelUsage) int { return cmp.Compare(chat.InputTokens(a), chat.InputTokens(b)) })
	price := p.in(model, billing.Mode)
	if billing.Mode != "" && (price == nil || c.Batched != nil || tooLong(p[model], price, largest)) {
		return true
	}
	if price == nil {
		return false
	}
	var cost float64
	for _, pass := range passes {
		cost += chat.Cost(price, pass, billing.LongCacheWrite == nil && c.Model.Constant().LongCache)
	}
	if billing.LongCacheWrite != nil { // Which pass wrote them is not known.
		cost += chat.LongWriteCost(price, largest, *billing.LongCacheWrite)
	}
	usage.TotalCost = new(c.share() * cost)
	return false
}

// tooLong reports whether a call had more input than the prices of a mode are for: the plain prices have others for it,
// and the mode has none.
func tooLong(plain, mode *modelv1.Prices, usage *modelv1.ModelUsage) bool {
	return plain.GetLongInput() != nil && mode.GetLongInput() == nil && chat.InputTokens(usage) > plain.GetLongInputTokens()
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
	return append([]string{resource.Project(c.Origin.Project), resource.Account(c.Model.Kind.Name, c.Model.Account)}, c.Scopes...)
}

// guess returns the likely usage of an answer; nil if its provider reports it, and for a refusal, for which nothing was
// generated.
func (c *Call) guess(output *modelv1.ModelOutput) *modelv1.ModelUsage {
	if Counts(output.GetUsage()) {
		return nil
	}
	var said []*modelv1.ChatMessage
	for _, choice := range output.GetChoices() {
		if reason := choice.GetStopReason(); reason == modelv1.StopReason_STOP_REASON_MODEL_LENGTH || reason == modelv1.StopReason_STOP_REASON_CONTENT_FILTER {
			return nil
		}
		said = append(said, choice.GetMessage())
	}
	return Unfinished(nil, c.Tokens()+tokens.RoughTools(c.Tools), tokens.Rough(said))
}

// estimate returns the most tokens that a call is likely to take.
func (c *Call) estimate() int64 {
	return chat.SumTokens(c.UnreadTokens, c.Tokens(), tokens.RoughTools(c.Tools), c.Config.GetMaxTokens())
}
