package taskfile

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/tokenlimit"
)

// limits reads the bounds of each sample.
func (r *reader) limits(n *yaml.Node) error {
	l := &agentv1.RunLimits{}
	r.task.Spec.Limits = l
	return r.mapping(n, "limits", map[string]key{
		"messages": optional(r, &l.Messages),
		"turns":    optional(r, &l.Turns),
		"tokens": func(n *yaml.Node) error {
			count, formula, err := tokenlimit.Parse(n.Value)
			l.Tokens, l.TokenFormula = &count, formula
			return r.at(n, err)
		},
		"cost":         optional(r, &l.Cost),
		"time":         r.duration(&l.Time),
		"working_time": r.duration(&l.WorkingTime),
	})
}

// longest bounds durations, far from where they overflow.
const longest = 10 * 365 * 24 * time.Hour

// duration reads `90s`, `5m`, or a number of seconds.
func (r *reader) duration(to **durationpb.Duration) key {
	return func(n *yaml.Node) error {
		d, err := time.ParseDuration(n.Value)
		if seconds, notSeconds := strconv.ParseFloat(n.Value, 64); notSeconds == nil && seconds <= longest.Seconds() {
			d, err = time.Duration(seconds*float64(time.Second)), nil
		}
		if err != nil || d < 0 || d > longest {
			return r.fault(n, "%s must be a duration like 90s or 5m, or a number of seconds, not %s", r.key, show(n))
		}
		*to = durationpb.New(d)
		return nil
	}
}

// bytes reads a number of bytes, or one with a unit: `512MiB`.
func (r *reader) bytes(to **int64) key {
	return func(n *yaml.Node) error {
		size, ok := byteSize(n.Value)
		if !ok {
			return r.fault(n, "%s must be a size like 512MiB or 2GiB, not %s", r.key, show(n))
		}
		*to = &size
		return nil
	}
}

func byteSize(text string) (int64, bool) {
	units := []struct {
		suffix string
		shift  uint
	}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}, {"", 0}}
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			return n << u.shift, err == nil && n >= 0 && n <= (1<<62)>>u.shift
		}
	}
	return 0, false
}
