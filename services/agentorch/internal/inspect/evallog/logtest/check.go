package logtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
)

// checkHeader checks a header as every reader does, and extracts the members that readers use.
func checkHeader(document *orderedjson.Object) (*Header, error) {
	if fault := headerShape(document); fault != "" {
		return nil, fmt.Errorf("%w: %s", ErrInvalid, fault)
	}
	eval := member(document, "eval")
	h := &Header{
		Version: int(orElse(document, "version", evallog.Version)), Status: string(evallog.Started), Document: document,
		Epochs: int(orElse(member(eval, "config"), "epochs", 1)), SampleIDs: sampleIDs(document, member(eval, "dataset")),
	}
	if status, there := document.Get("status"); there {
		h.Status = fmt.Sprint(status)
	}
	task, _ := eval.Get("task")
	h.Task, _ = task.(string)
	return h, nil
}

func member(document *orderedjson.Object, name string) *orderedjson.Object {
	value, _ := document.Get(name)
	object, _ := value.(*orderedjson.Object)
	return object
}

// orElse returns a member that is an integer, or absent if there is none.
func orElse(document *orderedjson.Object, name string, absent int64) int64 {
	value, _ := document.Get(name)
	literal, ok := numeral(value)
	if !ok {
		return absent
	}
	n, _ := strconv.ParseFloat(literal, 64)
	return int64(n)
}

// sampleIDs are those that the dataset names, or else those of the samples in the header itself.
func sampleIDs(document, dataset *orderedjson.Object) []any {
	value, _ := dataset.Get("sample_ids")
	if ids, ok := value.([]any); ok {
		return ids
	}
	value, _ = document.Get("samples")
	samples, _ := value.([]any)
	var ids []any
	for _, item := range samples {
		if sample, ok := item.(*orderedjson.Object); ok {
			id, _ := sample.Get("id")
			ids = append(ids, id)
		}
	}
	return ids
}

// checkPart checks a sample, or a summary.
func checkPart(value any, s shape) (Part, error) {
	if fault := s(value); fault != "" {
		return Part{}, fmt.Errorf("%w: %s", ErrInvalid, fault)
	}
	document, _ := value.(*orderedjson.Object)
	part := Part{Document: document, Epoch: int(orElse(document, "epoch", 0))}
	part.ID, _ = document.Get("id")
	if truth, ok := part.ID.(bool); ok {
		part.ID = json.Number(map[bool]string{true: "1", false: "0"}[truth])
	}
	return part, nil
}

// quoteNumbers quotes the bare words for non-finite numbers, so that the rest is JSON.
func quoteNumbers(text []byte) []byte {
	var out []byte
	copied, inText := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case !inText && (c == 'N' || c == 'I' || c == '-'):
			for _, word := range [][]byte{[]byte("NaN"), []byte("Infinity"), []byte("-Infinity")} {
				if bytes.HasPrefix(text[i:], word) {
					out = append(out, text[copied:i]...)
					out = append(append(append(out, '"'), word...), '"')
					copied = i + len(word)
					i = copied - 1
					break
				}
			}
		}
	}
	if copied == 0 {
		return text
	}
	return append(out, text[copied:]...)
}
