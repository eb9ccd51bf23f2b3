package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// EtagOf returns the etag of a resource (AIP-154): a hash over the fields of message that an update can set, by their
// paths, and over the state in which an update has its effect. A resource whose other fields change keeps its etag, so
// that a client may update what it has read of a resource at work.
func EtagOf(message proto.Message, settable []string, state any) string {
	hash := sha256.New()
	fmt.Fprintln(hash, state)
	m := message.ProtoReflect()
	for _, path := range settable {
		_, fields := maskPath(m.Descriptor(), path)
		if !populated(m, fields) {
			continue
		}
		of := m
		for _, f := range fields[:len(fields)-1] {
			of = of.Get(f).Message()
		}
		last := fields[len(fields)-1]
		one := of.New()
		one.Set(last, of.Get(last))
		value, _ := proto.MarshalOptions{Deterministic: true}.Marshal(one.Interface()) // A message of ours always marshals.
		fmt.Fprintf(hash, "%s %d\n", path, len(value))
		hash.Write(value)
	}
	return hex.EncodeToString(hash.Sum(nil)[:etagBytes])
}

// etagBytes is the length of an etag before it is written in hex.
const etagBytes = 8

// Etag fails with ETAG_MISMATCH if a caller gives the etag of another state of a resource. An empty one fits any.
func Etag(name, given, current string) error {
	if given != "" && given != current {
		return EtagMismatch(name, given)
	}
	return nil
}

// EtagMismatch is the error for an update whose etag was that of another state when the update was to be made.
func EtagMismatch(name, given string) error {
	return rpcerr.EtagMismatch("%s has changed since it had the etag %q; read it again", name, given)
}
