package endpoint

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/seal"
)

// reopened returns a body, and the members in it, as an upstream of the client's format gets them: without the
// envelopes that the client holds from answers of other models. release ends the use of the body; of one that has no
// envelopes, which is returned itself, it does nothing.
func (x *exchange) reopened(b *buffer.Buffer, found *members, m *provider.Model, upstream *provider.Upstream) (*buffer.Buffer, *members, func(), error) {
	nothing := func() {}
	codec, ok := x.Codec.(dialect.Reopener)
	if !ok {
		return b, found, nothing, nil
	}
	caps := m.Constant()
	reader := cmp.Or(upstream.Sealer, caps.Sealer)
	opened := codec.Reopen(b.Bytes, func(part *contentv1.Content) *contentv1.Content {
		if part.GetReasoning().GetSealedBy() == dialect.AnySealer { // A seal of the client's format had no envelope.
			part.GetReasoning().SealedBy = dialect.NoSealer
		}
		return seal.For(reader, part)
	}, caps.SignCalls != nil)
	if jsonedit.Same(b.Bytes, opened) {
		return b, found, nothing, nil
	}
	own := buffer.New()
	own.Bytes = opened
	found, err := x.scanner.scan(own.Bytes)
	if err != nil {
		own.Release()
		return nil, nil, nothing, err
	}
	return own, found, own.Release, nil
}
