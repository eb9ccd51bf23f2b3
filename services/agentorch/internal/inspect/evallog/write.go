package evallog

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// stampLayout is ISO 8601 with an offset, which in logs is always UTC's.
const stampLayout = "2006-01-02T15:04:05.000000-07:00"

// Stamp writes a time as logs have it.
func Stamp(t time.Time) string { return t.UTC().Format(stampLayout) }

// Number writes a number as logs have it, with bare words for non-finite numbers. Whole numbers keep a point: Python
// distinguishes 1 from 1.0.
func Number(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == math.Trunc(f) && math.Abs(f) < 1e16:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// list writes a member that is a list.
func list[T any](w *jsonwrite.Writer, name string, items []T, write func(T)) {
	w.Key(name)
	w.BeginList()
	for _, item := range items {
		write(item)
	}
	w.EndList()
}

// object writes a member that is an object; {} if raw is empty.
func object(w *jsonwrite.Writer, name string, raw json.RawMessage) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	w.RawMember(name, string(raw))
}

// optional writes a member unless raw is empty.
func optional(w *jsonwrite.Writer, name string, raw json.RawMessage) {
	w.RawUnlessEmpty(name, string(raw))
}

// members writes a member that is an object of these.
func members(w *jsonwrite.Writer, name string, all []Member) {
	w.Key(name)
	w.BeginObject()
	for _, m := range all {
		w.RawMember(m.Name, string(m.Value))
	}
	w.EndObject()
}

// moment writes a time unless it is zero.
func moment(w *jsonwrite.Writer, name string, t time.Time) {
	if !t.IsZero() {
		w.TextMember(name, Stamp(t))
	}
}

// seconds writes a duration to the millisecond.
func seconds(w *jsonwrite.Writer, name string, d time.Duration) {
	w.RawMember(name, Number(float64(d.Round(time.Millisecond).Milliseconds())/1000))
}

func (e *Error) write(w *jsonwrite.Writer) {
	w.BeginObject()
	w.TextMember("message", e.Message)
	traceback := cmp.Or(e.Traceback, e.Message)
	w.TextMember("traceback", traceback)
	w.TextMember("traceback_ansi", traceback)
	w.EndObject()
}

func (s *Sandbox) write(w *jsonwrite.Writer, name string) {
	if s == nil {
		return
	}
	w.Key(name)
	w.BeginObject()
	w.TextMember("type", s.Type)
	optional(w, "config", s.Config)
	w.EndObject()
}
