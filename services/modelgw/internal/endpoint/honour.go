package endpoint

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// honoured fails where a request asks for what its model's provider would pass over. Callers of the platform's own API
// are told of it beside the answer, for which no vendor's format has a place.
func (f *format) honoured(config *modelv1.GenerateConfig, m *provider.Model) error {
	for _, option := range provider.OptionsSet(config, m.Capabilities().Ignored) {
		return dialect.NotSupported(cmp.Or(f.about.Options[option], option), "is not supported by %s; leave it out", m.FullName())
	}
	return nil
}
