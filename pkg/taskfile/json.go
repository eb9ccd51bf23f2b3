package taskfile

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

// jsonText reads a value as JSON text into v.
func (r *reader) jsonText(v *string) key {
	return func(n *yaml.Node) (err error) {
		*v, err = r.asJSON(n)
		return err
	}
}

// jsonMap is jsonText for a map.
func (r *reader) jsonMap(v *string) key {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.MappingNode {
			return r.fault(n, "metadata must be a map, not %s", show(n))
		}
		return r.jsonText(v)(n)
	}
}

// asJSON converts a value to JSON text. Keys keep their order and numbers their digits; dates and binary values become
// texts, as written.
func (r *reader) asJSON(n *yaml.Node) (string, error) {
	var b strings.Builder
	if err := r.writeJSON(&b, n, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (r *reader) writeJSON(b *strings.Builder, n *yaml.Node, depth int) error {
	if depth > bound.TaskJSONDepth || b.Len() > bound.TaskJSONBytes {
		return r.fault(n, "%s nests deeper than %d or is larger than %d bytes", r.key, bound.TaskJSONDepth, bound.TaskJSONBytes)
	}
	switch n = resolved(n); n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i, e := range entries(n) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(quoted(e.key.Value))
			b.WriteByte(':')
			if err := r.writeJSON(b, e.value, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := r.writeJSON(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	default:
		text, err := scalarJSON(n)
		if err != nil {
			return r.at(n, err)
		}
		b.Write(text)
	}
	return nil
}

func scalarJSON(n *yaml.Node) ([]byte, error) {
	switch n.ShortTag() {
	case "!!null":
		return []byte("null"), nil
	case "!!bool":
		var v bool
		err := n.Decode(&v)
		return strconv.AppendBool(nil, v), err
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return []byte(n.Value), nil
		}
		var i int64 // 0x1f, 0o17, 1_000
		if n.Decode(&i) == nil {
			return strconv.AppendInt(nil, i, 10), nil
		}
		var f float64
		if err := n.Decode(&f); err != nil {
			return nil, err
		}
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, errors.New(n.Value + " is no number that JSON can hold")
		}
		return json.Marshal(f)
	}
	return quoted(n.Value), nil
}

func quoted(text string) []byte {
	b, _ := json.Marshal(text) // A text can always be written.
	return b
}
