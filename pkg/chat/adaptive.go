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
	highest := orDefault(a.GetMax(), a != nil && a.Max != nil, defaultAdaptiveMax)
	lowest := orDefault(a.GetMin(), a != nil && a.Min != nil, min(defaultAdaptiveMin, highest))
	start := orDefault(a.GetStart(), a != nil && a.Start != nil, max(lowest, min(defaultAdaptiveStart, highest)))
	cooldown := orDefault(a.GetCooldownSeconds(), a != nil && a.CooldownSeconds != nil, defaultCooldownSeconds)
	factor := orDefault(a.GetDecreaseFactor(), a != nil && a.DecreaseFactor != nil, defaultDecreaseFactor)
	percent := orDefault(a.GetScaleUpPercent(), a != nil && a.ScaleUpPercent != nil, defaultScaleUpPercent)
	switch {
	case lowest < 1:
		problem = "min must be at least 1"
	case highest < lowest:
		problem = "max must not be below min"
	case start < lowest || start > highest:
		problem = "start must be from min to max"
	case cooldown < 0:
		problem = "cooldown_seconds must not be negative"
	case factor <= 0 || factor >= 1:
		problem = "decrease_factor must be above 0 and below 1"
	case percent <= 0 || percent > 1:
		problem = "scale_up_percent must be above 0 and at most 1"
	}
	return &modelv1.AdaptiveConnections{
		Min: &lowest, Start: &start, Max: &highest, CooldownSeconds: &cooldown, DecreaseFactor: &factor, ScaleUpPercent: &percent,
	}, problem
}

func orDefault[T int32 | float64](value T, set bool, fallback T) T {
	if set {
		return value
	}
	return fallback
}
