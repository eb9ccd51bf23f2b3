package resource

import (
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// maskField is the field of every update that has the mask.
const maskField = "update_mask"

// Mask returns which of the settable fields an update of message changes (AIP-134): those that mask names or, where it
// is empty, those that are set in message. The path `*` names all of them. Names and etags, and fields that only the
// server sets, are ignored, so that a message that was read can be sent back modified. It fails with INVALID_REQUEST
// for the field `update_mask` if the mask names anything else, or nothing is to be changed.
func Mask(mask *fieldmaskpb.FieldMask, message proto.Message, settable ...string) ([]string, error) {
	m := message.ProtoReflect()
	var changes []string
	for _, asked := range mask.GetPaths() {
		path, fields := maskPath(m.Descriptor(), asked)
		switch {
		case asked == "*":
			return settable, nil
		case asked == "": // This is how grpc-gateway names a body without members.
		case slices.Contains(settable, path):
			if !slices.Contains(changes, path) {
				changes = append(changes, path)
			}
		case fields == nil:
			return nil, rpcerr.InvalidField(maskField, "%q is no field of %s; %s can be changed", asked, m.Descriptor().Name(), strings.Join(settable, ", "))
		case !serverOnly(fields):
			return nil, rpcerr.InvalidField(maskField, "%q cannot be changed; %s can", path, strings.Join(settable, ", "))
		}
	}
	if len(mask.GetPaths()) == 0 {
		for _, path := range settable {
			if _, fields := maskPath(m.Descriptor(), path); populated(m, fields) {
				changes = append(changes, path)
			}
		}
	}
	if len(changes) == 0 {
		return nil, rpcerr.InvalidField(maskField, "nothing is to be changed; set or name one of %s", strings.Join(settable, ", "))
	}
	return changes, nil
}

// maskPath parses a path whose parts are names in the schema or in JSON, and returns it with the schema's names. Fields
// is nil if d has no such field.
func maskPath(d protoreflect.MessageDescriptor, path string) (name string, fields []protoreflect.FieldDescriptor) {
	var names []string
	for part := range strings.SplitSeq(path, ".") {
		if d == nil {
			return path, nil
		}
		f := d.Fields().ByName(protoreflect.Name(part))
		if f == nil {
			f = d.Fields().ByJSONName(part)
		}
		if f == nil {
			return path, nil
		}
		names, fields, d = append(names, string(f.Name())), append(fields, f), f.Message()
	}
	return strings.Join(names, "."), fields
}

// populated reports whether the field at the end of a path is set in m.
func populated(m protoreflect.Message, path []protoreflect.FieldDescriptor) bool {
	for i, f := range path {
		if !m.Has(f) {
			return false
		}
		if i < len(path)-1 {
			m = m.Get(f).Message()
		}
	}
	return true
}

// serverOnly reports whether a path is of a field that an update does not change in any case.
func serverOnly(path []protoreflect.FieldDescriptor) bool {
	if first := path[0].Name(); first == "name" || first == "etag" {
		return true
	}
	return slices.ContainsFunc(path, func(f protoreflect.FieldDescriptor) bool {
		behaviors, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
		return slices.Contains(behaviors, annotations.FieldBehavior_OUTPUT_ONLY)
	})
}

// Etag fails with ETAG_MISMATCH where a caller gives the etag of another state of a resource. An empty one fits any.
func Etag(name, given, current string) error {
	if given != "" && given != current {
		return rpcerr.EtagMismatch("%s has changed since it was read: its etag is %q and not %q; read it again", name, current, given)
	}
	return nil
}
