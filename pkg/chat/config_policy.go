package chat

import (
	"cmp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/lenientjson"
)

// The options that switch a mechanism: a truth value, a number, or an object of its settings.

// Defaults of these mechanisms.
const (
	defaultCacheExpiry = "1W"

	defaultAdaptiveMin     = 10
	defaultAdaptiveStart   = 20
	defaultAdaptiveMax     = 100
	defaultCooldownSeconds = 15
	defaultDecreaseFactor  = 0.8
	defaultScaleUpPercent  = 0.05
)

// neverExpires is the expiry that the JSON form writes as null.
const neverExpires = "never"

func readCache(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	if on, ok := lenientjson.AsBool(o.Raw("cache")); ok {
		c.Cache = &modelv1.CacheSetting{Enabled: on}
		return
	}
	p := o.Object("cache")
	policy := &modelv1.CachePolicy{Expiry: p.Text("expiry"), PerEpoch: p.Bool("per_epoch")}
	if p.Has("expiry") && p.Raw("expiry") == nil {
		policy.Expiry = neverExpires
	}
	policy.Scopes, _ = p.StringMap("scopes")
	c.Cache = &modelv1.CacheSetting{Enabled: true, Policy: policy}
}

func writeCache(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
	switch cache := c.GetCache(); {
	case cache == nil:
	case !cache.GetEnabled() || cache.GetPolicy() == nil:
		w.BoolMember("cache", cache.GetEnabled())
	default:
		policy := cache.GetPolicy()
		w.Key("cache")
		w.BeginObject()
		w.Key("expiry")
		if policy.GetExpiry() == neverExpires {
			w.Null()
		} else {
			w.Text(cmp.Or(policy.GetExpiry(), defaultCacheExpiry))
		}
		w.BoolMember("per_epoch", policy.PerEpoch == nil || policy.GetPerEpoch())
		w.Key("scopes")
		writeStringMap(w, policy.GetScopes())
		w.EndObject()
	}
}

func readBatch(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	raw := o.Raw("batch")
	if on, ok := lenientjson.AsBool(raw); ok && !lenientjson.IsInt(raw) {
		c.Batch = &modelv1.BatchSetting{Enabled: on}
		return
	}
	if _, ok := lenientjson.AsInt(raw); ok {
		size := o.Int32("batch")
		c.Batch = &modelv1.BatchSetting{Enabled: orZero32(size) != 0, Size: size}
		return
	}
	b := o.Object("batch")
	c.Batch = &modelv1.BatchSetting{
		Enabled:                     true,
		Size:                        b.Int32("size"),
		MaxSize:                     b.Int32("max_size"),
		SendDelay:                   seconds(b.Float("send_delay")),
		Tick:                        seconds(b.Float("tick")),
		MaxBatches:                  b.Int32("max_batches"),
		MaxConsecutiveCheckFailures: b.Int32("max_consecutive_check_failures"),
	}
}

func orZero32(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

func seconds(f *float64) *durationpb.Duration {
	if f == nil {
		return nil
	}
	return durationpb.New(time.Duration(*f * float64(time.Second)))
}

func writeBatch(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
	b := c.GetBatch()
	switch {
	case b == nil:
		return
	case b.Size != nil && onlySize(b) && b.GetEnabled() == (b.GetSize() != 0):
		w.IntMember("batch", int64(b.GetSize()))
		return
	case !b.GetEnabled() || b.Size == nil && onlySize(b):
		w.BoolMember("batch", b.GetEnabled())
		return
	}
	w.Key("batch")
	w.BeginObject()
	jsonwrite.OptInt(w, "size", b.Size)
	jsonwrite.OptInt(w, "max_size", b.MaxSize)
	writeSeconds(w, "send_delay", b.GetSendDelay())
	writeSeconds(w, "tick", b.GetTick())
	jsonwrite.OptInt(w, "max_batches", b.MaxBatches)
	jsonwrite.OptInt(w, "max_consecutive_check_failures", b.MaxConsecutiveCheckFailures)
	w.EndObject()
}

// onlySize reports whether a setting holds at most a size: it was a number or a boolean.
func onlySize(b *modelv1.BatchSetting) bool {
	return b.MaxSize == nil && b.SendDelay == nil && b.Tick == nil && b.MaxBatches == nil && b.MaxConsecutiveCheckFailures == nil
}

func writeSeconds(w *jsonwrite.Writer, name string, d *durationpb.Duration) {
	if d != nil {
		w.Key(name)
		w.Float(d.AsDuration().Seconds())
	}
}

// readAdaptive reads true, false, the highest limit, `min-max`, `min-start-max`, or an object. Unless it is a boolean
// or a number, the bounds are completed with defaults and validated.
func readAdaptive(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	raw := o.Raw("adaptive_connections")
	if on, ok := lenientjson.AsBool(raw); ok && !lenientjson.IsInt(raw) {
		c.AdaptiveConnections = &modelv1.AdaptiveConnections{Enabled: &on}
		return
	}
	if _, ok := lenientjson.AsInt(raw); ok {
		c.AdaptiveConnections = &modelv1.AdaptiveConnections{Max: o.Int32("adaptive_connections")}
		return
	}
	given := &modelv1.AdaptiveConnections{}
	if text, ok := lenientjson.AsText(raw); ok {
		given, ok = adaptiveOfText(text)
		if !ok {
			o.Fail("adaptive_connections", "must be true, false, a number, min-max, min-start-max or an object")
			return
		}
	} else if a := o.Object("adaptive_connections"); a != nil {
		given.Min, given.Start, given.Max = a.Int32("min"), a.Int32("start"), a.Int32("max")
		given.CooldownSeconds = a.Float("cooldown_seconds")
		given.DecreaseFactor, given.ScaleUpPercent = a.Float("decrease_factor"), a.Float("scale_up_percent")
	}
	filled, problem := adaptiveBounds(given)
	if problem != "" {
		o.Fail("adaptive_connections", "%s", problem)
	}
	c.AdaptiveConnections = filled
}

func adaptiveOfText(text string) (*modelv1.AdaptiveConnections, bool) {
	parts := strings.Split(text, "-")
	numbers := make([]*int32, len(parts))
	for i, part := range parts {
		n, ok := lenientjson.AsInt([]byte(`"` + strings.TrimSpace(part) + `"`))
		if !ok || int64(int32(n)) != n {
			return nil, false
		}
		numbers[i] = new(int32(n))
	}
	switch len(numbers) {
	case 2:
		return &modelv1.AdaptiveConnections{Min: numbers[0], Max: numbers[1]}, true
	case 3:
		return &modelv1.AdaptiveConnections{Min: numbers[0], Start: numbers[1], Max: numbers[2]}, true
	default:
		return nil, false
	}
}

func writeAdaptive(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
	a := c.GetAdaptiveConnections()
	if a == nil {
		return
	}
	tuned := a.Min != nil || a.Start != nil || a.CooldownSeconds != nil || a.DecreaseFactor != nil || a.ScaleUpPercent != nil
	switch {
	case !tuned && a.Max != nil:
		w.IntMember("adaptive_connections", int64(a.GetMax()))
		return
	case !tuned || (a.Enabled != nil && !a.GetEnabled()):
		w.BoolMember("adaptive_connections", a.Enabled == nil || a.GetEnabled())
		return
	}
	filled, _ := adaptiveBounds(a)
	w.Key("adaptive_connections")
	w.BeginObject()
	jsonwrite.OptInt(w, "min", filled.Min)
	jsonwrite.OptInt(w, "max", filled.Max)
	jsonwrite.OptInt(w, "start", filled.Start)
	w.OptFloat("cooldown_seconds", filled.CooldownSeconds)
	w.OptFloat("decrease_factor", filled.DecreaseFactor)
	w.OptFloat("scale_up_percent", filled.ScaleUpPercent)
	w.EndObject()
}
