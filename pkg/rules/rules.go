// Package rules holds messages against the rules of their schema, which are options of buf.validate.
package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/enum"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Check returns an INVALID_REQUEST that names every field of m that breaks a rule; nil if no field does. It is safe for
// concurrent use.
func Check(m proto.Message) error {
	err := protovalidate.Validate(m)
	if err == nil {
		return nil
	}
	faults, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		return rpcerr.Internal("cannot check a %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	var fields rpcerr.Fields
	for _, v := range faults.Violations {
		path := v.Proto.GetField()
		if oneof := oneofAt(m.ProtoReflect().Descriptor(), path.GetElements()); oneof != nil {
			within := &validate.FieldPath{Elements: path.GetElements()[:len(path.GetElements())-1]}
			fields.Add(protovalidate.FieldPathString(within), "set one of "+strings.Join(members(oneof), ", "))
			continue
		}
		fields.Add(protovalidate.FieldPathString(path), fault(v))
	}
	return fields.Err()
}

// oneofAt returns the oneof at the end of a path that begins in a message of d; nil if the path ends in a field.
func oneofAt(d protoreflect.MessageDescriptor, path []*validate.FieldPathElement) protoreflect.OneofDescriptor {
	for i, element := range path {
		field := d.Fields().ByName(protoreflect.Name(element.GetFieldName()))
		switch {
		case field == nil && i == len(path)-1:
			return d.Oneofs().ByName(protoreflect.Name(element.GetFieldName()))
		case field == nil:
			return nil
		case field.IsMap():
			field = field.MapValue()
		}
		if d = field.Message(); d == nil {
			return nil
		}
	}
	return nil
}

// members are the names of a oneof's fields.
func members(oneof protoreflect.OneofDescriptor) []string {
	names := make([]string, oneof.Fields().Len())
	for i := range names {
		names[i] = string(oneof.Fields().Get(i).Name())
	}
	return names
}

// allowed are the words of an enum without those of the numbers that a field must not have.
func allowed(d protoreflect.EnumDescriptor, but protoreflect.List) string {
	words := enum.Words(d)
	for i := range but.Len() {
		not := d.Values().ByNumber(protoreflect.EnumNumber(but.Get(i).Int()))
		words = slices.DeleteFunc(words, func(word string) bool { return enum.Find(d, word) == not })
	}
	return strings.Join(words, ", ")
}

// fault describes the rule that a field breaks. A missing field has one description, whichever rule refuses it.
func fault(v *protovalidate.Violation) string {
	if !v.RuleValue.IsValid() { // A rule with words of its own.
		return v.Proto.GetMessage()
	}
	missing := v.Proto.GetRuleId() == "required"
	switch v.Proto.GetRuleId() {
	case "enum.defined_only":
		return fmt.Sprintf("%d is none of %s", v.FieldValue.Enum(), strings.Join(enum.Words(v.FieldDescriptor.Enum()), ", "))
	case "enum.not_in":
		return fmt.Sprintf("may not be %s; want %s", v.FieldDescriptor.Enum().Values().ByNumber(v.FieldValue.Enum()).Name(), allowed(v.FieldDescriptor.Enum(), v.RuleValue.List()))
	}
	pattern := ""
	if v.Proto.GetRuleId() == "string.pattern" {
		pattern = v.RuleValue.String()
	}
	switch value := v.FieldValue.Interface().(type) {
	case string:
		missing = value == ""
	case protoreflect.List:
		missing = value.Len() == 0
	}
	switch words := patterns[pattern]; {
	case missing:
		return "is required"
	case words != "":
		return fmt.Sprintf("is %q; want %s", headtail.Cut(v.FieldValue.String(), maxShownValue), words)
	}
	return v.Proto.GetMessage()
}

// maxShownValue bounds how much of a value an error shows, in bytes.
const maxShownValue = 100

// patterns describes the patterns of the schema.
var patterns = map[string]string{
	"^[0-9a-f]{64}$":                    "64 hexadecimal digits in lower case",
	"^[A-Za-z0-9_-]{1,64}$":             "1 to 64 letters, digits, _ and -",
	"^[A-Za-z0-9_-]{1,128}$":            "1 to 128 letters, digits, _ and -",
	"^[A-Za-z0-9-]{1,63}$":              "1 to 63 letters, digits and -",
	"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$": "1 to 63 lower-case letters, digits and -, a letter first and no - at the end",
}
