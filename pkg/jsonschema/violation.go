package jsonschema

import (
	"cmp"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

var english = message.NewPrinter(language.English)

// Violation is one breach of a schema.
type Violation struct {
	// Keyword is the violated keyword of the schema, such as `type` or `required`; empty if the schema is `false`.
	Keyword string
	// At is the JSON pointer (RFC 6901) of the value that breaks it; empty for the whole document.
	At string
	// Message describes the violation, for people and models.
	Message string
	// Unknown are the members that the schema does not define, if it allows no others.
	Unknown []string
}

// String returns place and message in one line.
func (v Violation) String() string {
	if v.At == "" {
		return v.Message
	}
	return v.At + ": " + v.Message
}

// mostText bounds the text of the violations of one document, in bytes: each has its place, which may be long.
const mostText = 16 << 20

// violations flattens the tree of a failed validation. Nodes that only group are omitted; alternatives are one
// violation. What is beyond mostText is left out.
func violations(root *jsonschema.ValidationError) []Violation {
	var all []Violation
	left := mostText
	collect(root, func(v Violation) (more bool) {
		all = append(all, v)
		left -= len(v.At) + len(v.Message)
		return left > 0
	})
	slices.SortFunc(all, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Keyword, b.Keyword), cmp.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(all, func(a, b Violation) bool { return a.Keyword == b.Keyword && a.At == b.At && a.Message == b.Message })
}

// collect gives the violations to add until it wants no more of them, and returns whether it wants more.
func collect(err *jsonschema.ValidationError, add func(Violation) (more bool)) (more bool) {
	switch err.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		for _, cause := range err.Causes {
			if !collect(cause, add) {
				return false
			}
		}
		return true
	}
	at := pointer(err.InstanceLocation)
	switch k := err.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			if !add(Violation{Keyword: "required", At: at, Message: "the member '" + name + "' is missing"}) {
				return false
			}
		}
		return true
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		return add(Violation{Keyword: "additionalProperties", At: at, Message: "not expected here: '" + strings.Join(k.Properties, "', '") + "'", Unknown: k.Properties})
	case *kind.Minimum:
		return add(Violation{Keyword: keyword(k), At: at, Message: bounded("at least", k.Got, k.Want)})
	case *kind.ExclusiveMinimum:
		return add(Violation{Keyword: keyword(k), At: at, Message: bounded("more than", k.Got, k.Want)})
	case *kind.Maximum:
		return add(Violation{Keyword: keyword(k), At: at, Message: bounded("at most", k.Got, k.Want)})
	case *kind.ExclusiveMaximum:
		return add(Violation{Keyword: keyword(k), At: at, Message: bounded("less than", k.Got, k.Want)})
	case *kind.AnyOf, *kind.OneOf:
		return add(Violation{Keyword: keyword(k), At: at, Message: alternatives(err)})
	default:
		return add(Violation{Keyword: keyword(k), At: at, Message: k.LocalizedString(english)})
	}
}

// bounded describes the violation of a numeric bound.
func bounded(bound string, got, want *big.Rat) string {
	number := func(r *big.Rat) string {
		f, _ := r.Float64()
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return "is " + number(got) + "; want " + bound + " " + number(want)
}

// alternatives explains why none of several schemas matches, or that more than one does.
func alternatives(err *jsonschema.ValidationError) string {
	var reasons []string
	known := map[string]bool{}
	left := mostText
	for _, cause := range err.Causes {
		collect(cause, func(v Violation) (more bool) {
			left -= len(v.At) + len(v.Message)
			reason := strings.TrimPrefix(v.String(), pointer(err.InstanceLocation)+": ")
			if !known[reason] {
				known[reason] = true
				reasons = append(reasons, reason)
			}
			return left > 0
		})
	}
	if len(reasons) == 0 {
		return err.ErrorKind.LocalizedString(english)
	}
	return "none of the alternatives fits: " + strings.Join(reasons, "; ")
}

func keyword(k jsonschema.ErrorKind) string {
	path := k.KeywordPath()
	if len(path) == 0 {
		return ""
	}
	return path[0]
}

func pointer(location []string) string {
	var b strings.Builder
	for _, token := range location {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}
