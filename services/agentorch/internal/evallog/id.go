package evallog

import (
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat/encode"
)

// ID is the id of a sample: a text, or an integer as its digits.
type ID struct {
	Text    string
	Integer bool
}

func (id ID) write(w *encode.Writer) {
	if id.Integer {
		w.Raw(id.Text)
	} else {
		w.Text(id.Text)
	}
}

// member is the name of a sample's member in an archive. An id stands in it as it is: one with slashes makes folders.
func (id ID) member(epoch int) string { return fmt.Sprintf("samples/%s_epoch_%d.json", id.Text, epoch) }
