package rpcerr

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// In makes an error about a part of a request one about the request. Path is the path of the part, such as
// `spec.steps[0]`; the fields of the error are below it. An error without fields is about the part itself. The message
// begins with the whole path if there is one field, and with path if there are several or none. Nil stays nil.
func In(path string, err error) error { return Moved("", path, err) }

// Moved is In for a part that has another path in a request that is derived from the caller's: fields at or below from
// become fields at or below to. An error without such fields is returned unchanged.
func Moved(from, to string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := As(err)
	if !ok {
		return Wrap(err, "%s", to)
	}
	moved := e.clone()
	moved.cause = err
	if outer := err.Error(); strings.Contains(outer, e.Message) {
		moved.Message = outer
	}
	if len(e.Fields) == 0 {
		if from != "" {
			return err
		}
		switch e.Code { //nolint:exhaustive // No field of a request causes the others.
		case codes.InvalidArgument, codes.Unimplemented, codes.FailedPrecondition:
			moved.Fields = []Field{{Path: to, Description: moved.Message}}
		}
		moved.Message = to + ": " + moved.Message
		return moved
	}
	moved.Fields = make([]Field, len(e.Fields))
	found, said := false, false
	for i, f := range e.Fields {
		moved.Fields[i] = f
		below, ok := Below(f.Path, from)
		if !ok {
			continue
		}
		found = true
		moved.Fields[i].Path = to + below
		if f.Path != "" && moved.Metadata["field"] == f.Path {
			moved.Metadata["field"] = to + below
		}
		old, now := f.Path+": ", to+below+": "
		switch {
		case f.Path == "" || !strings.Contains(moved.Message, old):
		case len(e.Fields) == 1: // The text that wraps the message follows the path.
			moved.Message, said = now+strings.Replace(moved.Message, old, "", 1), true
		default:
			moved.Message, said = strings.Replace(moved.Message, old, now, 1), true
		}
	}
	switch {
	case !found:
		return err
	case said:
	case len(moved.Fields) == 1:
		moved.Message = moved.Fields[0].Path + ": " + moved.Message
	default:
		moved.Message = to + ": " + moved.Message
	}
	return moved
}

// Concerns reports whether err names a field at path or below it.
func Concerns(path string, err error) bool {
	e, ok := As(err)
	return ok && slices.ContainsFunc(e.Fields, func(f Field) bool {
		_, below := Below(f.Path, path)
		return below
	})
}

// Below returns the rest of a path below another one, as a suffix: `.model`, `[0]`, `/template`, or empty for the path
// itself. Every path is below the empty one.
func Below(path, above string) (string, bool) {
	rest, ok := strings.CutPrefix(path, above)
	switch {
	case !ok:
		return "", false
	case rest == "" || strings.ContainsAny(rest[:1], ".[/"):
		return rest, true
	case above == "":
		return "." + rest, true
	}
	return "", false
}

// JSONPath converts the names of a field's path to their JSON names. Keys of maps, which are in brackets, stay, and so
// do the members of a JSON text, which follow a slash.
func JSONPath(path string) string {
	var out strings.Builder
	depth, upper := 0, false
	for i, c := range path {
		switch {
		case c == '/' && depth == 0:
			return out.String() + path[i:]
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '_' && depth == 0:
			upper = true
			continue
		}
		if upper {
			c, upper = []rune(strings.ToUpper(string(c)))[0], false
		}
		out.WriteRune(c)
	}
	return out.String()
}
