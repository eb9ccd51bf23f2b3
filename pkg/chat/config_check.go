package chat

import (
	"fmt"
	"maps"
	"math"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/reflect/protoreflect"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Options that cannot be as low as this mean nothing to any provider; other bounds are the provider's own.
var (
	aboveZero   = []protoreflect.Name{"timeout", "stream_idle_timeout", "attempt_timeout", "max_connections", "max_tokens", "num_choices", "best_of"}
	notNegative = []protoreflect.Name{"max_retries"}
)

// optionWords are the values of options that are one of some words.
var optionWords = map[string][]string{
	"verbosity":         {"low", "medium", "high"},
	"effort":            {"low", "medium", "high", "xhigh", "max"},
	"reasoning_effort":  {"none", "minimal", "low", "medium", "high", "xhigh", "max"},
	"reasoning_mode":    {"standard", "pro"},
	"reasoning_summary": {"none", "concise", "detailed", "auto"},
}

// CheckConfig fails with INVALID_REQUEST, for the field `config.OPTION`, if a number of a configuration is NaN,
// infinite, or too low to be meaningful, if a word is none of the option's, or if a header cannot be sent. An empty
// word counts as unset.
func CheckConfig(c *modelv1.GenerateConfig) error {
	var fault error
	c.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		fault = checkOption(field, value)
		return fault == nil
	})
	if fault != nil {
		return fault
	}
	return checkHeaders(c.GetExtraHeaders().GetValues())
}

func checkOption(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	if !finite(field, value) {
		return rpcerr.InvalidField("config."+string(field.Name()), "must be a finite number")
	}
	switch n := number(field, value); {
	case slices.Contains(aboveZero, field.Name()) && n <= 0:
		return rpcerr.InvalidField("config."+string(field.Name()), "is %v, must be above 0; leave it out for the default", n)
	case slices.Contains(notNegative, field.Name()) && n < 0:
		return rpcerr.InvalidField("config."+string(field.Name()), "is %v, must not be negative", n)
	case field.Name() == "prompt_logprobs" && (n < 1 || n > mostPromptLogprobs):
		return rpcerr.InvalidField("config.prompt_logprobs", "is %v, must be from 1 to %d", n, mostPromptLogprobs)
	}
	if words := optionWords[string(field.Name())]; words != nil && value.String() != "" && !slices.Contains(words, value.String()) {
		return rpcerr.InvalidField("config."+string(field.Name()), "%q is none of %s", value.String(), strings.Join(words, ", "))
	}
	return nil
}

// mostPromptLogprobs bounds prompt_logprobs, which is at least 1.
const mostPromptLogprobs = 20

// ownHeaders are the headers that the connection to a provider decides.
var ownHeaders = []string{"Accept-Encoding", "Content-Length", "Host", "Trailer", "Transfer-Encoding"}

// checkHeaders fails for a header that no request can have, or that would be replaced.
func checkHeaders(headers map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		field := fmt.Sprintf("config.extra_headers.values[%q]", name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return rpcerr.InvalidField(field, "is no name of a header")
		case !httpguts.ValidHeaderFieldValue(headers[name]):
			return rpcerr.InvalidField(field, "has a value with a control character")
		case slices.Contains(ownHeaders, textproto.CanonicalMIMEHeaderKey(name)):
			return rpcerr.InvalidField(field, "is the connection's own")
		}
	}
	return nil
}

// number is the value of a field that holds one number; 0 for others.
func number(field protoreflect.FieldDescriptor, value protoreflect.Value) float64 {
	switch field.Kind() {
	case protoreflect.DoubleKind:
		return value.Float()
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return float64(value.Int())
	default:
		return 0
	}
}

// finite reports whether every number of fractions in a field is a finite one.
func finite(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
	ok := true
	switch {
	case field.IsMap():
		value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			ok = finite(field.MapValue(), v)
			return ok
		})
	case field.IsList():
		for i := range value.List().Len() {
			ok = ok && (field.Kind() != protoreflect.DoubleKind || isFinite(value.List().Get(i).Float()))
		}
	case field.Kind() == protoreflect.DoubleKind:
		return isFinite(value.Float())
	case field.Message() != nil:
		value.Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			ok = finite(f, v)
			return ok
		})
	}
	return ok
}

func isFinite(n float64) bool { return math.Abs(n) <= math.MaxFloat64 }
