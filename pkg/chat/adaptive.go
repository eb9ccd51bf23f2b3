package chat

import (
	"errors"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Adaptive returns the complete bounds of the adaptive limit of connections, or nil if the limit does not adapt: it is
// switched off, the number of connections is fixed, or requests are batched. The error names the bound that is out of
// range.
func Adaptive(c *modelv1.GenerateConfig) (*modelv1.AdaptiveConnections, error) {
	a := c.GetAdaptiveConnections()
	off := a != nil && a.Enabled != nil && !a.GetEnabled()
	if off || c.GetBatch().GetEnabled() || c != nil && c.MaxConnections != nil {
		return nil, nil
	}
	bounds, problem := adaptiveBounds(a)
	if problem != "" {
		return nil, errors.New("adaptive_connections: " + problem)
	}
	return bounds, nil
}

// adaptiveBounds completes unset bounds: the lowest limit is at most the highest one, and the initial one lies between
// them. problem names a fault of the result.
func adaptiveBounds(a *modelv1.AdaptiveConnections) (filled *modelv1.AdaptiveConnections, problem string) {
	var b struct {
		lowest, start, highest    int32
		cooldown, factor, percent float64
	}
	b.highest = orDefault(a.GetMax(), a != nil && a.Max != nil, defaultAdaptiveMax)
	b.lowest = orDefault(a.GetMin(), a != nil && a.Min != nil, min(defaultAdaptiveMin, b.highest))
	b.start = orDefault(a.GetStart(), a != nil && a.Start != nil, max(b.lowest, min(defaultAdaptiveStart, b.highest)))
	b.cooldown = orDefault(a.GetCooldownSeconds(), a != nil && a.CooldownSeconds != nil, defaultCooldownSeconds)
	b.factor = orDefault(a.GetDecreaseFactor(), a != nil && a.DecreaseFactor != nil, defaultDecreaseFactor)
	b.percent = orDefault(a.GetScaleUpPercent(), a != nil && a.ScaleUpPercent != nil, defaultScaleUpPercent)
	switch {
	case b.highest < 1:
		problem = "max must be at least 1"
	case b.lowest < 1:
		problem = "min must be at least 1"
	case b.highest < b.lowest:
		problem = "max must not be below min"
	case b.start < b.lowest || b.start > b.highest:
		problem = "start must be from min to max"
	case b.cooldown < 0:
		problem = "cooldown_seconds must not be negative"
	case b.factor <= 0 || b.factor >= 1:
		problem = "decrease_factor must be above 0 and below 1"
	case b.percent <= 0 || b.percent > 1:
		problem = "scale_up_percent must be above 0 and at most 1"
	}
	return &modelv1.AdaptiveConnections{
		Min: &b.lowest, Start: &b.start, Max: &b.highest, CooldownSeconds: &b.cooldown, DecreaseFactor: &b.factor, ScaleUpPercent: &b.percent,
	}, problem
}

func orDefault[T int32 | float64](value T, set bool, fallback T) T {
	if set {
		return value
	}
	return fallback
}
