package logreader

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/evalfleet/evalfleet/pkg/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/evallog"
)

// statuses are those that a log may have.
var statuses = []string{string(evallog.Started), string(evallog.Success), string(evallog.Cancelled), string(evallog.Failed)}

// checkHeader checks what every reader needs of a header.
func checkHeader(document *orderedjson.Object) (*Header, error) {
	h := &Header{Version: evallog.Version, Status: string(evallog.Started), Epochs: 1, Document: document}
	if version, ok := document.Get("version"); ok {
		n, err := strconv.Atoi(fmt.Sprint(version))
		if err != nil {
			return nil, fmt.Errorf("%w: version %v", ErrInvalid, version)
		}
		h.Version = n
	}
	if status, ok := document.Get("status"); ok {
		h.Status = fmt.Sprint(status)
	}
	if !slices.Contains(statuses, h.Status) {
		return nil, fmt.Errorf("%w: status %s", ErrInvalid, h.Status)
	}
	value, _ := document.Get("eval")
	eval, ok := value.(*orderedjson.Object)
	if !ok {
		return nil, fmt.Errorf("%w: no eval", ErrInvalid)
	}
	texts := map[string]string{}
	for _, name := range []string{"created", "task", "model"} {
		value, _ := eval.Get(name)
		if texts[name], ok = value.(string); !ok {
			return nil, fmt.Errorf("%w: eval has no %s", ErrInvalid, name)
		}
	}
	h.Task = texts["task"]
	if !isTime(texts["created"]) {
		return nil, fmt.Errorf("%w: eval was created at %q", ErrInvalid, texts["created"])
	}
	objects := map[string]*orderedjson.Object{}
	for _, name := range []string{"dataset", "config"} {
		value, _ := eval.Get(name)
		if objects[name], ok = value.(*orderedjson.Object); !ok {
			return nil, fmt.Errorf("%w: eval has no %s", ErrInvalid, name)
		}
	}
	if epochs, ok := objects["config"].Get("epochs"); ok && epochs != nil {
		n, err := strconv.Atoi(fmt.Sprint(epochs))
		if err != nil {
			return nil, fmt.Errorf("%w: %v epochs", ErrInvalid, epochs)
		}
		h.Epochs = n
	}
	h.SampleIDs = sampleIDs(document, objects["dataset"])
	return h, checkMetrics(document)
}

// sampleIDs are those that the dataset names, else those of the samples that stand in the header itself.
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

// checkMetrics refuses metrics without a number.
func checkMetrics(document *orderedjson.Object) error {
	value, _ := document.Get("results")
	results, ok := value.(*orderedjson.Object)
	if !ok {
		return nil
	}
	value, _ = results.Get("scores")
	scores, _ := value.([]any)
	for _, item := range scores {
		score, _ := item.(*orderedjson.Object)
		if score == nil {
			return fmt.Errorf("%w: a score is no object", ErrInvalid)
		}
		value, _ := score.Get("metrics")
		metrics, _ := value.(*orderedjson.Object)
		if metrics == nil {
			continue
		}
		for name, item := range metrics.All() {
			metric, _ := item.(*orderedjson.Object)
			if metric == nil {
				return fmt.Errorf("%w: metric %s is no object", ErrInvalid, name)
			}
			if value, _ := metric.Get("value"); !isNumber(value) {
				return fmt.Errorf("%w: metric %s has the value %v", ErrInvalid, name, value)
			}
		}
	}
	return nil
}

// checkPart checks what every reader needs of a sample and of a summary.
func checkPart(value any) (Part, error) {
	document, ok := value.(*orderedjson.Object)
	if !ok {
		return Part{}, fmt.Errorf("%w: a sample is no object", ErrInvalid)
	}
	part := Part{Document: document}
	part.ID, _ = document.Get("id")
	switch id := part.ID.(type) {
	case string:
	case json.Number:
		if _, err := strconv.ParseInt(string(id), 10, 64); err != nil {
			return Part{}, fmt.Errorf("%w: id %s", ErrInvalid, id)
		}
	default:
		return Part{}, fmt.Errorf("%w: no id", ErrInvalid)
	}
	epoch, _ := document.Get("epoch")
	number, _ := epoch.(json.Number)
	var err error
	if part.Epoch, err = strconv.Atoi(string(number)); err != nil {
		return Part{}, fmt.Errorf("%w: no epoch", ErrInvalid)
	}
	for _, name := range []string{"input", "target"} {
		value, _ := document.Get(name)
		switch value.(type) {
		case string, []any:
		default:
			return Part{}, fmt.Errorf("%w: no %s", ErrInvalid, name)
		}
	}
	return part, nil
}

func isNumber(value any) bool {
	switch v := value.(type) {
	case json.Number:
		return true
	case string:
		return v == "NaN" || v == "Infinity" || v == "-Infinity"
	}
	return false
}

// isTime reports whether a text is a time, with or without an offset.
func isTime(text string) bool {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, time.DateOnly} {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}

// quoteNumbers puts the bare words for numbers that are none into quotes, so that the rest is JSON.
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
