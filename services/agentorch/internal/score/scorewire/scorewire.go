// Package scorewire turns scores into the messages that journals and clients have, and back.
package scorewire

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// FromScore returns the message of a score.
func FromScore(s score.Score) *agentv1.Score {
	m := &agentv1.Score{Value: FromValue(s.Value), Answer: s.Answer, Explanation: s.Explanation}
	if s.Reason != "" {
		m.Reason = &s.Reason
	}
	if s.Metadata != nil {
		b, _ := json.Marshal(s.Metadata) // Raw messages that were read from JSON.
		m.MetadataJson = string(b)
	}
	return m
}

// ToScore reads the message of a score. Metadata that is no JSON object is left out.
func ToScore(m *agentv1.Score) score.Score {
	s := score.Score{Value: ToValue(m.GetValue()), Answer: m.Answer, Explanation: m.Explanation, Reason: m.GetReason()}
	if m.GetMetadataJson() != "" {
		_ = json.Unmarshal([]byte(m.GetMetadataJson()), &s.Metadata)
	}
	return s
}

// FromValue returns the message of a value; nil for null.
func FromValue(v score.Value) *agentv1.ScoreValue {
	switch v.Kind() {
	case score.KindText:
		return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: v.Text()}}
	case score.KindNumber:
		if v.IsUnscored() {
			return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Unscored{Unscored: true}}
		}
		f, _ := v.Float()
		return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Number{Number: f}, Integer: isInteger(v, f)}
	case score.KindBool:
		f, _ := v.Float()
		return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Flag{Flag: f != 0}}
	case score.KindList:
		list := &agentv1.ScoreValueList{}
		for _, item := range v.Items() {
			list.Values = append(list.Values, FromValue(item))
		}
		return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_List{List: list}}
	case score.KindMap:
		entries := &agentv1.ScoreValueMap{}
		for _, e := range v.Entries() {
			entries.Entries = append(entries.Entries, &agentv1.ScoreValueEntry{Key: e.Key, Value: FromValue(e.Value)})
		}
		return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Map{Map: entries}}
	case score.KindNull:
	}
	return nil
}

// isInteger reports whether a number was written, or would be written, without a point.
func isInteger(v score.Value, f float64) bool {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return false
	}
	_, err := strconv.ParseInt(string(v.AppendLog(nil)), 10, 64)
	return err == nil
}

// ToValue reads the message of a value; null for nil.
func ToValue(m *agentv1.ScoreValue) score.Value {
	switch k := m.GetKind().(type) {
	case *agentv1.ScoreValue_Text:
		return score.Text(k.Text)
	case *agentv1.ScoreValue_Number:
		return number(k.Number, m.GetInteger())
	case *agentv1.ScoreValue_Unscored:
		return score.Unscored()
	case *agentv1.ScoreValue_Flag:
		return score.Bool(k.Flag)
	case *agentv1.ScoreValue_List:
		items := make([]score.Value, 0, len(k.List.GetValues()))
		for _, item := range k.List.GetValues() {
			items = append(items, ToValue(item))
		}
		return score.List(items...)
	case *agentv1.ScoreValue_Map:
		entries := make([]score.Entry, 0, len(k.Map.GetEntries()))
		for _, e := range k.Map.GetEntries() {
			entries = append(entries, score.Entry{Key: e.GetKey(), Value: ToValue(e.GetValue())})
		}
		return score.Map(entries...)
	}
	return score.Value{}
}

// number returns a number that is written as it was: with a point or without.
func number(f float64, integer bool) score.Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return score.Number(f)
	}
	literal := strconv.FormatFloat(f, 'g', -1, 64)
	switch {
	case integer:
		literal = strconv.FormatInt(int64(f), 10)
	case !strings.ContainsAny(literal, ".e"):
		literal += ".0"
	}
	var v score.Value
	if v.UnmarshalJSON([]byte(literal)) != nil {
		return score.Number(f)
	}
	return v
}
