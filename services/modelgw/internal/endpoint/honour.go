package endpoint

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// honoured fails if a request has options that the model's provider would ignore. The platform's own API reports them
// beside the answer, for which no vendor's format has a place.
func (f *format) honoured(config *modelv1.GenerateConfig, m *provider.Model) error {
	for _, option := range provider.OptionsSet(config, provider.CapabilitiesOf(m.Provider, config).Ignored) {
		return dialect.NotSupported(cmp.Or(f.about.Options[option], option), "is not supported by %s; leave it out", m.FullName())
	}
	return nil
}
