package plan

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// checkJSON checks every field that, by its name, holds JSON as text: logs copy such texts from the journal unchanged.
func checkJSON(path string, m protoreflect.Message) (err error) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		at := path + "." + string(field.Name())
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
					err = checkJSON(fmt.Sprintf("%s[%q]", at, key), entry.Message())
					return err == nil
				})
			}
		case field.IsList():
			for i := 0; field.Message() != nil && i < value.List().Len() && err == nil; i++ {
				err = checkJSON(fmt.Sprintf("%s[%d]", at, i), value.List().Get(i).Message())
			}
		case field.Message() != nil:
			err = checkJSON(at, value.Message())
		case field.Kind() == protoreflect.StringKind && holdsJSON(field) && value.String() != "" && !json.Valid([]byte(value.String())):
			err = rpcerr.InvalidField(at, "want JSON as text")
		}
		return err == nil
	})
	return err
}

func holdsJSON(field protoreflect.FieldDescriptor) bool {
	name := string(field.Name())
	return strings.HasSuffix(name, "_json") || strings.HasPrefix(name, "json_")
}
