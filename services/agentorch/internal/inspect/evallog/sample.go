package evallog

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// json writes the whole sample.
func (s *Sample) json() []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	s.identity(&w, s.Input, s.Target)
	s.Sandbox.write(&w, "sandbox")
	if len(s.Files) > 0 {
		w.TextList("files", s.Files)
	}
	w.TextUnlessEmpty("setup", s.Setup)
	w.RawMember("messages", orEmptyList(s.Messages))
	w.RawMember("output", string(s.Output))
	writeScores(&w, s.Scores)
	object(&w, "metadata", s.Metadata)
	members(&w, "store", s.Store)
	list(&w, "events", s.Events, func(e json.RawMessage) { w.Raw(string(e)) })
	s.usage(&w)
	if s.Error != nil {
		w.Key("error")
		s.Error.write(&w)
	}
	if len(s.Retries) > 0 {
		list(&w, "error_retries", s.Retries, func(e Error) { e.write(&w) })
	}
	s.Condensed.write(&w)
	if s.Limit != nil {
		w.Key("limit")
		w.BeginObject()
		w.TextMember("type", s.Limit.Type)
		w.RawMember("limit", Number(s.Limit.Limit))
		w.TextUnlessEmpty("reason", s.Limit.Reason)
		w.EndObject()
	}
	s.bounds(&w)
	w.EndObject()
	return w.Bytes()
}

// summary writes the sample's entry in lists.
func (s *Sample) summary(w *jsonwrite.Writer) {
	w.BeginObject()
	s.identity(w, thinInput(s.Input), thinTarget(s.Target))
	object(w, "metadata", thinMetadata(s.Metadata))
	thin := make([]Score, len(s.Scores))
	for i, score := range s.Scores {
		thin[i] = score.thin()
	}
	writeScores(w, thin)
	s.usage(w)
	if s.Error != nil {
		w.TextMember("error", s.Error.Message)
	}
	if s.Limit != nil {
		w.TextMember("limit", s.Limit.Type)
		w.TextUnlessEmpty("limit_reason", s.Limit.Reason)
	}
	if len(s.Retries) > 0 {
		w.IntMember("retries", int64(len(s.Retries)))
	}
	w.BoolMember("completed", true)
	w.IntMember("message_count", int64(s.MessageCount))
	s.bounds(w)
	w.EndObject()
}

// identity writes the members that identify the sample.
func (s *Sample) identity(w *jsonwrite.Writer, input, target json.RawMessage) {
	w.Key("id")
	s.ID.write(w)
	w.IntMember("epoch", int64(s.Epoch))
	w.RawMember("input", string(input))
	if len(s.Choices) > 0 {
		w.TextList("choices", s.Choices)
	}
	w.RawMember("target", string(target))
}

// usage writes the sample's usage of tokens and of time, and the models that answered in place of others.
func (s *Sample) usage(w *jsonwrite.Writer) {
	members(w, "model_usage", s.ModelUsage)
	members(w, "role_usage", s.RoleUsage)
	if len(s.Fallbacks) > 0 {
		list(w, "model_fallbacks", s.Fallbacks, func(f Fallback) {
			w.BeginObject()
			w.TextMember("model", f.Model)
			w.TextMember("fallback_model", f.By)
			w.IntMember("count", int64(f.Count))
			w.EndObject()
		})
	}
	moment(w, "started_at", s.Started)
	moment(w, "completed_at", s.Completed)
	seconds(w, "total_time", s.TotalTime)
	seconds(w, "working_time", s.WorkTime)
	w.TextUnlessEmpty("uuid", s.UUID)
}

func (s *Sample) bounds(w *jsonwrite.Writer) {
	w.IntMember("turn_count", int64(s.Turns))
	jsonwrite.OptInt(w, "token_limit", s.Bounds.Tokens)
	w.TextUnlessEmpty("token_limit_type", s.Bounds.TokenType)
	jsonwrite.OptInt(w, "token_limit_usage", s.Bounds.TokensUsed)
	jsonwrite.OptInt(w, "message_limit", s.Bounds.Messages)
	jsonwrite.OptInt(w, "time_limit", s.Bounds.TimeSeconds)
}

// writeScores writes the scores by name; it writes nothing if the sample has none.
func writeScores(w *jsonwrite.Writer, scores []Score) {
	if len(scores) == 0 {
		return
	}
	w.Key("scores")
	w.BeginObject()
	for i := range scores {
		w.Key(scores[i].Name)
		w.Raw(string(scores[i].JSON()))
	}
	w.EndObject()
}

// JSON writes the judgement without its name.
func (s *Score) JSON() json.RawMessage {
	var w jsonwrite.Writer
	w.BeginObject()
	s.members(&w)
	w.EndObject()
	return w.Bytes()
}

func (s *Score) members(w *jsonwrite.Writer) {
	w.RawMember("value", string(s.Value))
	w.OptText("answer", s.Answer)
	w.OptText("explanation", s.Explanation)
	w.TextUnlessEmpty("reason", s.Reason)
	optional(w, "metadata", s.Metadata)
	w.RawMember("history", "[]")
}

func orEmptyList(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "[]"
	}
	return string(raw)
}
