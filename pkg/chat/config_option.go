package chat

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/lenientjson"
)

// The options whose JSON form is more than one value.

func readLogitBias(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	bias := o.Object("logit_bias")
	c.LogitBias = &modelv1.LogitBias{Values: map[int64]float64{}}
	for key := range bias.Members() {
		token, ok := lenientjson.AsInt([]byte(strconv.Quote(key)))
		if !ok {
			bias.Fail(key, "is no token id")
			continue
		}
		c.LogitBias.Values[token] = requireFloat(bias, key)
	}
}

func writeLogitBias(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
	if c.GetLogitBias() == nil {
		return
	}
	w.Key("logit_bias")
	w.BeginObject()
	for _, token := range slices.Sorted(maps.Keys(c.GetLogitBias().GetValues())) {
		w.Key(strconv.FormatInt(token, 10))
		w.Float(c.GetLogitBias().GetValues()[token])
	}
	w.EndObject()
}

func readPromptLogprobs(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	c.PromptLogprobs = o.Int32("prompt_logprobs")
	if n := c.PromptLogprobs; n != nil && (*n < 1 || *n > mostPromptLogprobs) {
		o.Fail("prompt_logprobs", "must be from 1 to %d", mostPromptLogprobs)
	}
}

func readCachePrompt(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	if word, ok := lenientjson.AsText(o.Raw("cache_prompt")); ok && word == "auto" {
		c.CachePrompt = modelv1.CachePrompt_CACHE_PROMPT_AUTO
		return
	}
	switch on, ok := lenientjson.AsBool(o.Raw("cache_prompt")); {
	case !ok:
		o.Fail("cache_prompt", "must be auto, true or false")
	case on:
		c.CachePrompt = modelv1.CachePrompt_CACHE_PROMPT_ON
	default:
		c.CachePrompt = modelv1.CachePrompt_CACHE_PROMPT_OFF
	}
}

// readReasoningHistory reads a mode, or the truth value of older records.
func readReasoningHistory(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	switch string(o.Raw("reasoning_history")) {
	case "true":
		c.ReasoningHistory = new(modelv1.ReasoningHistory_REASONING_HISTORY_ALL)
	case "false":
		c.ReasoningHistory = new(modelv1.ReasoningHistory_REASONING_HISTORY_NONE)
	default:
		c.ReasoningHistory = readEnum[modelv1.ReasoningHistory](o, "reasoning_history")
	}
}

func readExtraHeaders(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	if headers, ok := o.StringMap("extra_headers"); ok {
		c.ExtraHeaders = &modelv1.HeaderMap{Values: headers}
	}
}

func writeExtraHeaders(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
	if c.GetExtraHeaders() != nil {
		w.Key("extra_headers")
		writeStringMap(w, c.GetExtraHeaders().GetValues())
	}
}

func writeStringMap(w *jsonwrite.Writer, texts map[string]string) {
	w.BeginObject()
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		w.TextMember(key, texts[key])
	}
	w.EndObject()
}

// readModalities reads a list of `"image"` and `{"options": {"openai": {…}}}`.
func readModalities(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	items, ok := o.List("modalities")
	if !ok {
		return
	}
	list := &modelv1.ModalityList{}
	for _, item := range items {
		modality := &modelv1.Modality{Type: "image"}
		if word, isWord := lenientjson.AsText(item); isWord {
			if word != "image" {
				o.Fail("modalities", "%q is not known; image is", word)
			}
		} else if object, err := lenientjson.Parse(item); err != nil {
			o.Fail("modalities", "an item must be image or an object with options")
		} else {
			modality.OptionsJson = readImageOptions(o, object)
		}
		list.Values = append(list.Values, modality)
	}
	c.Modalities = list
}

func readImageOptions(parent, o *lenientjson.Object) string {
	providers := o.Object("options")
	if providers == nil {
		return "{}"
	}
	for provider := range providers.Members() {
		if provider != "openai" || providers.Object(provider) == nil {
			parent.Fail("modalities", "options must be an object of openai")
		}
	}
	return o.RawObject("options")
}

func writeModalities(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
	if c.GetModalities() == nil {
		return
	}
	w.Key("modalities")
	w.BeginList()
	for _, modality := range c.GetModalities().GetValues() {
		if modality.GetOptionsJson() == "" {
			w.Text(modality.GetType())
			continue
		}
		w.BeginObject()
		w.RawMember("options", modality.GetOptionsJson())
		w.EndObject()
	}
	w.EndList()
}

// ImageOutput reports whether a configuration requests images, and with which options: those of the last item that has
// any, as a JSON object of providers, or an empty text.
func ImageOutput(c *modelv1.GenerateConfig) (optionsJSON string, wanted bool) {
	for _, modality := range c.GetModalities().GetValues() {
		wanted = wanted || modality.GetType() == "image"
		optionsJSON = cmp.Or(modality.GetOptionsJson(), optionsJSON)
	}
	return optionsJSON, wanted
}
