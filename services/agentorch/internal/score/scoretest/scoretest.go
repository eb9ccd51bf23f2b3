// Package scoretest converts recorded score values for tests. Recorded cases write numbers that JSON cannot hold as the
// texts NaN, Infinity and -Infinity.
package scoretest

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

var constants = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

// Value reads a recorded value, decoded with numbers as json.Number.
func Value(t testing.TB, recorded any) score.Value {
	t.Helper()
	switch r := recorded.(type) {
	case nil:
		return score.Value{}
	case string:
		if f, ok := constants[r]; ok {
			return score.Number(f)
		}
	case []any:
		items := make([]score.Value, len(r))
		for i, item := range r {
			items[i] = Value(t, item)
		}
		return score.List(items...)
	case *orderedjson.Object:
		entries := make([]score.Entry, 0, r.Len())
		for key, member := range r.All() {
			entries = append(entries, score.Entry{Key: key, Value: Value(t, member)})
		}
		return score.Map(entries...)
	case map[string]any: // Its order is lost; cases whose outcome depends on it are decoded in order.
		entries := make([]score.Entry, 0, len(r))
		for _, key := range slices.Sorted(maps.Keys(r)) {
			entries = append(entries, score.Entry{Key: key, Value: Value(t, r[key])})
		}
		return score.Map(entries...)
	}
	raw, err := json.Marshal(recorded)
	require.NoError(t, err)
	var v score.Value
	require.NoError(t, json.Unmarshal(raw, &v))
	return v
}

// Recorded turns a value into the recorded form.
func Recorded(v score.Value) any {
	switch v.Kind() {
	case score.KindList:
		items := make([]any, len(v.Items()))
		for i, item := range v.Items() {
			items[i] = Recorded(item)
		}
		return items
	case score.KindMap:
		members := map[string]any{}
		for _, entry := range v.Entries() {
			members[entry.Key] = Recorded(entry.Value)
		}
		return members
	case score.KindNumber:
		if f, _ := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return string(v.AppendLog(nil))
		}
	case score.KindNull, score.KindText, score.KindBool:
	}
	return v
}

// Number turns a number into the recorded form.
func Number(f float64) any { return Recorded(score.Number(f)) }
