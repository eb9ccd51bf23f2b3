package result

import (
	"slices"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
)

func (m Metrics) empty() bool { return len(m.Plain) == 0 && len(m.ByKey) == 0 }

func (m Metrics) any(is func(metric.Metric) bool) bool { return !m.filter(is).empty() }

// filter returns the metrics that have a property; globs without any are dropped.
func (m Metrics) filter(is func(metric.Metric) bool) Metrics {
	keep := func(all []metric.Metric) []metric.Metric {
		var kept []metric.Metric
		for _, one := range all {
			if is(one) {
				kept = append(kept, one)
			}
		}
		return kept
	}
	filtered := Metrics{Plain: keep(m.Plain)}
	for _, k := range m.ByKey {
		if kept := keep(k.Metrics); kept != nil {
			filtered.ByKey = append(filtered.ByKey, KeyMetrics{Glob: k.Glob, Metrics: kept})
		}
	}
	return filtered
}

// resolve expands globs to the keys of the first map among the values, in the order of the globs and then of the keys.
// A key that several globs match gets the metrics of all of them, each name once. Without any map value, globs stay
// unexpanded.
func resolve(byKey []KeyMetrics, values []score.Value) []KeyMetrics {
	at := slices.IndexFunc(values, func(v score.Value) bool { return v.Kind() == score.KindMap })
	if at < 0 {
		return byKey
	}
	var resolved []KeyMetrics
	for _, k := range byKey {
		for _, entry := range values[at].Entries() {
			if !pytext.MatchGlob(k.Glob, entry.Key) {
				continue
			}
			i := slices.IndexFunc(resolved, func(r KeyMetrics) bool { return r.Glob == entry.Key })
			if i < 0 {
				i = len(resolved)
				resolved = append(resolved, KeyMetrics{Glob: entry.Key})
			}
			for _, m := range k.Metrics {
				if !slices.ContainsFunc(resolved[i].Metrics, func(have metric.Metric) bool { return have.Name == m.Name }) {
					resolved[i].Metrics = append(resolved[i].Metrics, m)
				}
			}
		}
	}
	return resolved
}
