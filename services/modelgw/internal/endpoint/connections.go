package endpoint

import (
	"cmp"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Connections are the bounds of the pools of connections that requests to the endpoints begin. A pool that another call
// has begun, such as one of an evaluation, keeps its own.
//
// Callers of an endpoint do not size their work by the limit, as an evaluation does with its samples: they wait. So the
// limit doubles in each round of answers for as long as the vendor refuses none, beyond the 100 of evaluations.
type Connections struct {
	// Min is the lowest limit, which refusals of the vendor leave at least. Default 10, or the highest limit if that is
	// less.
	Min int `yaml:"min" env:"EVALFLEET_MODELGW_ENDPOINTS_CONNECTIONS_MIN"`
	// Start is the first limit. Default 20, within the lowest and the highest. Set it to what your account allows, so
	// that the first requests do not wait.
	Start int `yaml:"start" env:"EVALFLEET_MODELGW_ENDPOINTS_CONNECTIONS_START"`
	// Max is the highest limit. Default 1000.
	Max int `yaml:"max" env:"EVALFLEET_MODELGW_ENDPOINTS_CONNECTIONS_MAX"`
}

const defaultMaxConnections = 1000

// SetDefaults sets the fields whose default does not depend on others.
func (c *Connections) SetDefaults() { c.Max = cmp.Or(c.Max, defaultMaxConnections) }

// Validate refuses bounds that contradict each other.
func (c *Connections) Validate() error {
	if _, err := chat.Adaptive(&modelv1.GenerateConfig{AdaptiveConnections: c.adaptive()}); err != nil {
		return fmt.Errorf("connections: %w", err)
	}
	return nil
}

// adaptive are the bounds for a call. What is zero is not set.
func (c *Connections) adaptive() *modelv1.AdaptiveConnections {
	bound := func(n int) *int32 {
		if n == 0 {
			return nil
		}
		return new(int32(n))
	}
	return &modelv1.AdaptiveConnections{Min: bound(c.Min), Start: bound(c.Start), Max: bound(c.Max)}
}
