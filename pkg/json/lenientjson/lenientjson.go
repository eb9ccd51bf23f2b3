// Package lenientjson reads JSON objects written by people and by other programs as the reference's validation does: a
// number may be in a text, `10.0` is an integer, `yes` is true, null is absent. A value that cannot be read so is a
// fault that names its field.
//
// An Object collects faults instead of returning one from every call: read all fields, then call Err once.
package lenientjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// Object is a JSON object that is being read.
type Object struct {
	members map[string]json.RawMessage
	path    string
	faults  *[]error
}

// Parse starts to read a document. It fails if the document is not a JSON object.
func Parse(document []byte) (*Object, error) {
	var faults []error
	o := newObject(document, "", &faults)
	return o, errors.Join(faults...)
}

// newObject reads raw as an object at path; any other value is a fault and reads as an empty object.
func newObject(raw json.RawMessage, path string, faults *[]error) *Object {
	o := &Object{path: path, faults: faults}
	if err := json.Unmarshal(raw, &o.members); err != nil {
		o.members = nil
		o.fault(path, "must be an object")
	} else if o.members == nil {
		o.fault(path, "must be an object, not null")
	}
	return o
}

// Err joins the faults found so far, in this object and in all that belong to it; nil when there are none.
func (o *Object) Err() error { return errors.Join(*o.faults...) }

// Fail adds a fault about a field; an empty name means the object itself.
func (o *Object) Fail(name, format string, args ...any) {
	o.fault(o.at(name), format, args...)
}

func (o *Object) fault(path, format string, args ...any) {
	problem := fmt.Sprintf(format, args...)
	if path != "" {
		problem = path + ": " + problem
	}
	*o.faults = append(*o.faults, errors.New(problem))
}

func (o *Object) at(name string) string {
	if o.path == "" || name == "" {
		return o.path + name
	}
	return o.path + "." + name
}

// Has reports whether the field is present, null or not.
func (o *Object) Has(name string) bool {
	_, ok := o.members[name]
	return ok
}

// Raw returns the field's JSON text, or nil when it is absent or null.
func (o *Object) Raw(name string) json.RawMessage {
	raw := o.members[name]
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// Require adds a fault if the field is absent or null, and reports whether it is present.
func (o *Object) Require(name string) bool {
	if o.Raw(name) == nil {
		o.Fail(name, "is required")
		return false
	}
	return true
}

// OnlyKnown adds one fault that lists the fields which are not among known, with the hint behind it.
func (o *Object) OnlyKnown(hint string, known ...string) {
	var unknown []string
	for name := range o.members {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		question := ""
		if len(unknown) == 1 {
			question = suggest.Question(unknown[0], known)
		}
		o.Fail("", "unknown field %s; %s%s", strings.Join(unknown, ", "), question, hint)
	}
}

// Object reads a field that is an object, or returns nil when it is absent or null.
func (o *Object) Object(name string) *Object {
	raw := o.Raw(name)
	if raw == nil {
		return nil
	}
	return newObject(raw, o.at(name), o.faults)
}

// RawObject returns the text of a field that is an object, without blanks around it and with the last of members that
// share a name. It is empty if the field is absent or null.
func (o *Object) RawObject(name string) string {
	raw := o.Raw(name)
	if raw == nil {
		return ""
	}
	if raw[0] != '{' {
		o.Fail(name, "must be an object")
		return ""
	}
	return o.Any(name)
}

// Any returns the text of a field of any kind, or an empty text when it is absent or null.
func (o *Object) Any(name string) string {
	raw := o.Raw(name)
	if raw == nil {
		return ""
	}
	tidy, err := orderedjson.Tidy(raw)
	if err != nil {
		o.Fail(name, "%v", err)
	}
	return string(tidy)
}

// List returns the items of a field, and whether it is present and not null.
func (o *Object) List(name string) (items []json.RawMessage, ok bool) {
	raw := o.Raw(name)
	if raw == nil {
		return nil, false
	}
	if err := json.Unmarshal(raw, &items); err != nil {
		o.Fail(name, "must be a list")
		return nil, false
	}
	return items, true
}

// Objects reads a list of objects, and reports whether the field is present.
func (o *Object) Objects(name string) (objects []*Object, ok bool) {
	items, ok := o.List(name)
	for i, item := range items {
		objects = append(objects, newObject(item, fmt.Sprintf("%s.%d", o.at(name), i), o.faults))
	}
	return objects, ok
}

// Members yields the fields of the object in no order; for maps whose keys are data.
func (o *Object) Members() map[string]json.RawMessage { return o.members }
