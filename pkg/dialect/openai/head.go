package openai

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// WriteHead writes the first members of an answer, or of a piece of one, as chat completions have them. object is its
// kind. output may be nil if meta has the model.
func WriteHead(w *jsonwrite.Writer, meta *dialect.ResponseMeta, output *modelv1.ModelOutput, object string) {
	w.TextMember("id", meta.ID)
	w.TextMember("object", object)
	w.IntMember("created", meta.Created)
	w.TextMember("model", cmp.Or(meta.Model, output.GetModel()))
}
