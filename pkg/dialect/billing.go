package dialect

import modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"

// Billing is what an answer says of its price beside its usage. The zero value says nothing.
type Billing struct {
	// LongCacheWrite are the tokens that were written to the vendor's cache for an hour, among those of the usage that
	// were written to it; nil if the answer does not say.
	LongCacheWrite *int64
	// Model is the model that answered in the place of the requested one; empty for none.
	Model string
	// Mode is a mode of the server with prices of its own; empty for the usual one.
	Mode string
	// Passes are the usages that the usage is the sum of, if the answer took several requests, or passes of the model:
	// the price of each depends on its own input.
	Passes []*modelv1.ModelUsage
}

// Biller is a [Response] that says more of its price than its usage does.
type Biller interface {
	Billing() Billing
}

// With returns the billing of an answer whose further part says more: numbers of a stream replace former ones.
func (b Billing) With(more Billing) Billing {
	if more.LongCacheWrite != nil {
		b.LongCacheWrite = more.LongCacheWrite
	}
	if more.Model != "" {
		b.Model = more.Model
	}
	if more.Mode != "" {
		b.Mode = more.Mode
	}
	if more.Passes != nil {
		b.Passes = more.Passes
	}
	return b
}
