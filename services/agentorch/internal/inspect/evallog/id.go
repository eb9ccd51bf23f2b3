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

// member is the name of a sample's member in an archive. An id is in it as it is, as Inspect looks for it: one with
// slashes makes folders. An id that would lead out of the folder that an archive is unpacked to is escaped, and one
// that no name of a file can have. So is one with an escape in it, which would otherwise share the member of another
// id. Inspect then reads the sample with all others, and does not find it by its id.
func (id ID) member(epoch int) string {
	text := id.Text
	segments := strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' })
	if slices.Contains(segments, "..") || escapes.MatchString(text) {
		text = strings.NewReplacer("%", "%25", "..", "%2E%2E", `\`, "%5C", "\x00", "%00").Replace(text)
	}
	return fmt.Sprintf("samples/%s_epoch_%d.json", text, epoch)
}
