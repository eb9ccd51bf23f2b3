package openai

import (
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Logprob is the log-probability of a token on the wire.
type Logprob struct {
	Token   string    `json:"token"`
	Logprob float64   `json:"logprob"`
	Bytes   []int32   `json:"bytes"`
	Top     []Logprob `json:"top_logprobs"`
}

// Message returns the log-probability.
func (p *Logprob) Message() *modelv1.Logprob {
	token := &modelv1.Logprob{Token: p.Token, Logprob: p.Logprob, Bytes: p.Bytes}
	for _, top := range p.Top {
		token.TopLogprobs = append(token.TopLogprobs, &modelv1.TopLogprob{Token: top.Token, Logprob: top.Logprob, Bytes: top.Bytes})
	}
	return token
}

// WriteLogprobs writes log-probabilities as a list.
func WriteLogprobs(w *jsonwrite.Writer, all []*modelv1.Logprob) {
	for _, p := range jsonwrite.Objects(w, all) {
		writeLogprob(w, p.GetToken(), p.GetLogprob(), p.GetBytes())
		w.Key("top_logprobs")
		for _, top := range jsonwrite.Objects(w, p.GetTopLogprobs()) {
			writeLogprob(w, top.GetToken(), top.GetLogprob(), top.GetBytes())
		}
	}
}

func writeLogprob(w *jsonwrite.Writer, token string, logprob float64, bytes []int32) {
	w.TextMember("token", token)
	w.Key("logprob")
	w.Float(logprob)
	w.Key("bytes")
	if bytes == nil {
		w.Null()
		return
	}
	for _, b := range jsonwrite.List(w, bytes) {
		w.Int(int64(b))
	}
}
