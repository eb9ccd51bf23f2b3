// Package filebody reads what a request has a file hold: bytes or text.
package filebody

import (
	"fmt"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// File is a message with the bytes or the text of a file. The other one is empty.
type File interface {
	GetContent() []byte
	GetText() string
}

// Bytes returns what the file holds; nothing where nothing is set. The bytes are the message's own.
func Bytes(f File) []byte {
	if text := f.GetText(); text != "" {
		return []byte(text)
	}
	return f.GetContent()
}

// CheckBuilt refuses files whose form is not built.
func CheckBuilt(field string, files []*sandboxv1.FileToPlace) error {
	for i, f := range files {
		if f.GetBlob() != nil {
			return rpcerr.NotBuiltField(fmt.Sprintf("%s[%d].blob", field, i), "placing files from blobs")
		}
	}
	return nil
}
