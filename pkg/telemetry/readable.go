package telemetry

import (
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// readable returns spans whose texts are UTF-8. Callers choose some of the texts, and the protocol cannot write a batch
// with one that is not: the spans of all others would be lost with it.
func readable(spans []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	all := slices.Clone(spans) // The batch is the processor's.
	for i, span := range all {
		if !utf8.ValidString(span.Name()) || slices.ContainsFunc(span.Attributes(), isUnreadable) {
			all[i] = cleaned{span}
		}
	}
	return all
}

// isUnreadable reports whether an attribute has a text that is not UTF-8.
func isUnreadable(a attribute.KeyValue) bool {
	return a.Value.Type() == attribute.STRING && !utf8.ValidString(a.Value.AsString())
}

// cleaned is a span with U+FFFD in place of what is not UTF-8.
type cleaned struct{ sdktrace.ReadOnlySpan }

// Name implements [sdktrace.ReadOnlySpan].
func (c cleaned) Name() string { return clean(c.ReadOnlySpan.Name()) }

// Attributes implements [sdktrace.ReadOnlySpan].
func (c cleaned) Attributes() []attribute.KeyValue {
	all := slices.Clone(c.ReadOnlySpan.Attributes())
	for i, a := range all {
		if isUnreadable(a) {
			all[i] = a.Key.String(clean(a.Value.AsString()))
		}
	}
	return all
}

func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
