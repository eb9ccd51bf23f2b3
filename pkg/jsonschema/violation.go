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

// violations flattens the tree of a failed validation. Nodes that only group are omitted; alternatives are one
// violation.
func violations(root *jsonschema.ValidationError) []Violation {
	var all []Violation
	collect(root, func(v Violation) { all = append(all, v) })
	slices.SortFunc(all, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Keyword, b.Keyword), cmp.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(all, func(a, b Violation) bool { return a.Keyword == b.Keyword && a.At == b.At && a.Message == b.Message })
}

func collect(err *jsonschema.ValidationError, add func(Violation)) {
	at := pointer(err.InstanceLocation)
	switch k := err.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		for _, cause := range err.Causes {
			collect(cause, add)
		}
	case *kind.Required:
		for _, name := range k.Missing {
			add(Violation{Keyword: "required", At: at, Message: "the member '" + name + "' is missing"})
		}
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		add(Violation{Keyword: "additionalProperties", At: at, Message: "not expected here: '" + strings.Join(k.Properties, "', '") + "'", Unknown: k.Properties})
	case *kind.Minimum:
		add(Violation{Keyword: keyword(k), At: at, Message: bounded("at least", k.Got, k.Want)})
	case *kind.ExclusiveMinimum:
		add(Violation{Keyword: keyword(k), At: at, Message: bounded("more than", k.Got, k.Want)})
	case *kind.Maximum:
		add(Violation{Keyword: keyword(k), At: at, Message: bounded("at most", k.Got, k.Want)})
	case *kind.ExclusiveMaximum:
		add(Violation{Keyword: keyword(k), At: at, Message: bounded("less than", k.Got, k.Want)})
	case *kind.AnyOf, *kind.OneOf:
		add(Violation{Keyword: keyword(k), At: at, Message: alternatives(err)})
	default:
		add(Violation{Keyword: keyword(k), At: at, Message: k.LocalizedString(english)})
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
	for _, cause := range err.Causes {
		collect(cause, func(v Violation) {
			reason := strings.TrimPrefix(v.String(), pointer(err.InstanceLocation)+": ")
			if !known[reason] {
				known[reason] = true
				reasons = append(reasons, reason)
			}
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
