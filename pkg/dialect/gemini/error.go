package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// failure is an error on the wire: https://cloud.google.com/apis/design/errors.
type failure struct {
	Code    any      `json:"code"`
	Message string   `json:"message"`
	Status  string   `json:"status"`
	Details []detail `json:"details"`
}

// detail is a detail of an error: an ErrorInfo, with the reason, a RetryInfo, with the delay, or a QuotaFailure.
type detail struct {
	Reason     string `json:"reason"`
	Delay      string `json:"retryDelay"`
	Violations []struct {
		Quota string `json:"quotaId"`
	} `json:"violations"`
}

// CodeDaily is the code of an error about a daily quota: a word of the quota's id.
const CodeDaily = "PerDay"

// UnmarshalJSON reads an object, without the members that are of an unexpected type, or a bare text.
func (f *failure) UnmarshalJSON(raw []byte) error {
	type plain failure
	if json.Unmarshal(raw, &f.Message) != nil {
		_ = json.Unmarshal(raw, (*plain)(f)) // It fails only after it has read all other members.
	}
	return nil
}

func (f *failure) toError(body []byte) *dialect.Error {
	e := &dialect.Error{Message: cmp.Or(f.Message, string(body)), Type: f.Status}
	if code, _ := strconv.Atoi(fmt.Sprint(f.Code)); code >= dialect.BadRequest && code < 600 {
		e.Status = code
	}
	daily := false
	for _, d := range f.Details {
		for _, v := range d.Violations {
			daily = daily || strings.Contains(v.Quota, CodeDaily)
		}
		e.Code = cmp.Or(e.Code, d.Reason)
		if delay, err := time.ParseDuration(d.Delay); err == nil && delay > 0 {
			e.RetryAfter = delay
		}
	}
	if daily { // The delay is then too short.
		e.Code, e.RetryAfter, e.Message = CodeDaily, 0, "the daily quota is used up: "+e.Message
	}
	return e
}

// DecodeError implements dialect.Codec. An error in place of a stream may be the first item of a list, and what is
// between a client and the API may answer with a bare message.
func (Codec) DecodeError(body []byte) *dialect.Error {
	var whole struct {
		Error   *failure `json:"error"`
		Message string   `json:"message"`
	}
	first := bytes.TrimSpace(body)
	if inner, ok := bytes.CutPrefix(first, []byte("[")); ok && bytes.HasSuffix(inner, []byte("]")) {
		first = inner[:len(inner)-1]
	}
	if json.Unmarshal(first, &whole) != nil || whole.Error == nil {
		return &dialect.Error{Message: cmp.Or(whole.Message, strings.TrimSpace(string(body)))}
	}
	return whole.Error.toError(body)
}

// StatusExhausted is the word for a status of too many requests.
const StatusExhausted = "RESOURCE_EXHAUSTED"

// statusWords are the words for statuses.
var statusWords = dialect.ErrorTypes{Client: "INVALID_ARGUMENT", Server: "UNAVAILABLE", ByStatus: map[int]string{
	401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED", 429: StatusExhausted, 499: "CANCELLED",
	500: "INTERNAL", 501: "UNIMPLEMENTED", 504: "DEADLINE_EXCEEDED",
}}

// AppendError implements dialect.Codec.
func (Codec) AppendError(dst []byte, f dialect.Failure) []byte {
	w := jsonwrite.Append(dst, 128+len(f.Message))
	w.BeginObject()
	w.BeginObjectMember("error")
	w.IntMember("code", int64(f.Status))
	w.TextMember("message", f.Message)
	w.TextMember("status", statusWords.Of(f.Status))
	if f.Param != "" {
		w.BeginListMember("details")
		w.BeginObject()
		w.TextMember("@type", "type.googleapis.com/google.rpc.BadRequest")
		w.BeginListMember("fieldViolations")
		w.TextObject("field", f.Param, "description", f.Message)
		w.EndList()
		w.EndObject()
		w.EndList()
	}
	w.EndObject()
	w.EndObject()
	return w.Bytes()
}

// tooLong are words of messages about a full context.
var tooLong = []string{"maximum number of tokens", "size exceeds the limit"}

// Stopped implements dialect.Codec. A prompt that the filter blocks is no error, but an answer without candidates.
func (Codec) Stopped(status int, e *dialect.Error, model string) (output *modelv1.ModelOutput, ok bool) {
	if status != dialect.BadRequest || !dialect.Mentions(e.Message, tooLong) {
		return nil, false
	}
	return dialect.ContextFull(model, e.Message), true
}

// TooLong implements dialect.Codec.
func (Codec) TooLong(said string) dialect.Failure {
	message := "The input token count exceeds the maximum number of tokens allowed: " + said
	if tokens, most, ok := dialect.Room(said); ok {
		message = fmt.Sprintf("The input token count (%d) exceeds the maximum number of tokens allowed (%d).", tokens, most)
	}
	return dialect.Failure{Status: dialect.BadRequest, Cause: dialect.TooLong, Param: "contents", Message: message}
}
