package modelgw

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/settings"
)

// servicesKey is the key of the known services, which are providers of their own.
const servicesKey = "services"

// reloaded are the keys of the configuration, with all below them, that Reload takes.
func reloaded() []string {
	keys := []string{"budgets", "prices", "models", "fallbacks", "evaluation_fallbacks", "endpoints.aliases", servicesKey}
	for _, v := range vendors {
		keys = append(keys, cmp.Or(v.key, v.name))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// settingsOf is the part of a configuration that is replaced while the gateway runs, beside the providers.
func settingsOf(cfg *Config) settings.Settings {
	known := modeldata.Default().With(cfg.Models)
	priced := map[string]bool{}
	for model := range cfg.Prices {
		priced[model] = true
	}
	return settings.Settings{
		Prices: pricesOf(known, cfg.Prices), Priced: priced, Data: known, Accounts: cfg.accountScopes(),
		Aliases: cfg.Endpoints.Aliases, Fallbacks: cfg.Fallbacks, EvaluationFallbacks: cfg.EvaluationFallbacks,
	}
}

// Reload replaces providers, accounts, prices, facts of models, aliases, fallbacks and budgets by those of a valid
// configuration. Calls in flight end with what they began with. Providers whose configuration is the same keep their
// connections. A budget that was changed while the gateway ran keeps that change unless the configuration of its scope
// differs from the previous one. If Reload fails, as it does after Close, everything is as before. Other keys are not
// taken: they need a new process.
func (s *Service) Reload(ctx context.Context, next Config) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	if s.closed {
		return errors.New("modelgw has stopped; start it again to use this configuration")
	}
	changed := config.Differences(&s.cfg, &next)
	differs := func(key string) bool {
		return slices.ContainsFunc(changed, func(path string) bool { return path == key || strings.HasPrefix(path, key+".") })
	}
	var kinds []provider.Kind
	closers, ends := map[string]func() error{}, map[string]bool{}
	for _, v := range vendors {
		if !differs(cmp.Or(v.key, v.name)) {
			continue
		}
		kind, closer, err := v.kind(&next, &s.deps)
		if err != nil {
			for _, closer := range closers {
				err = errors.Join(err, closer())
			}
			return err
		}
		kinds, closers[v.name], ends[v.name] = append(kinds, kind), closer, v.endsCalls
	}
	if differs(servicesKey) {
		known, closer := openaicompat.Kinds(next.Services)
		kinds, closers[servicesKey] = append(kinds, known...), closer
	}
	s.registry.Replace(kinds...)
	next.warnOfIdentities(ctx, s.log)
	s.retire(ctx, closers, ends)
	s.settings.Set(settingsOf(&next))
	for scope := range maps.Keys(union(s.cfg.Budgets, next.Budgets)) {
		if before, now := budget.Bounds(s.cfg.Budgets[scope]), budget.Bounds(next.Budgets[scope]); !before.Equal(now) {
			if err := s.budgets.Configure(ctx, scope, now); err != nil {
				s.log.WarnContext(ctx, "a budget has the bounds of the configuration, and may have those before it again after a restart",
					"scope", scope, "error", err)
			}
		}
	}
	s.cfg = next
	var names []string
	for _, kind := range kinds {
		names = append(names, kind.Name)
	}
	s.log.InfoContext(ctx, "the configuration is reloaded", "providers", strings.Join(names, ", "), "keys", strings.Join(changed, ", "))
	return nil
}

// retire ends what replaced providers have open: idle connections at once, of which calls in flight have none. What
// such a call may use stays open until the process ends.
func (s *Service) retire(ctx context.Context, next map[string]func() error, ends map[string]bool) {
	for name, closer := range next {
		old := s.vendorClosers[name]
		s.vendorClosers[name] = closer
		if ends[name] {
			s.closers = append(s.closers, old)
		} else if err := old(); err != nil {
			s.log.WarnContext(ctx, "idle connections of a replaced provider are not closed", "provider", name, "error", err)
		}
	}
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return all
}
