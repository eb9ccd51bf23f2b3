package evallog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// ID is the id of a sample: a text, or an integer as its digits.
type ID struct {
	Text    string
	Integer bool
}

func (id ID) write(w *jsonwrite.Writer) {
	if id.Integer {
		w.Raw(id.Text)
	} else {
		w.Text(id.Text)
	}
}

// escapes finds a NUL and the escapes of which [ID.member] leaves at least one in each id that it escapes.
var escapes = regexp.MustCompile(`\x00|%2E|%25|%00`)

// member is the name of a sample's member in an archive. It contains the id unchanged, since Inspect looks for it so:
// an id with slashes makes folders. Three kinds of ids are escaped: an id that would lead out of the folder of an
// unpacked archive, an id that no file name can have, and an id with an escape in it, which would otherwise share the
// member of another id. Inspect reads escaped samples with all others, but does not find them by id.
func (id ID) member(epoch int) string {
	text := id.Text
	segments := strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' })
	if slices.Contains(segments, "..") || escapes.MatchString(text) {
		text = strings.NewReplacer("%", "%25", "..", "%2E%2E", `\`, "%5C", "\x00", "%00").Replace(text)
	}
	return fmt.Sprintf("samples/%s_epoch_%d.json", text, epoch)
}
