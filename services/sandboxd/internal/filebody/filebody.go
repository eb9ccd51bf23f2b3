// Package filebody returns the content of files in requests, which is bytes or text.
package filebody

import (
	"fmt"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// File is a message with the bytes or the text of a file. The unused one is empty.
type File interface {
	GetContent() []byte
	GetText() string
}

// Bytes returns the content of the file; nothing if neither is set. The bytes are the message's own.
func Bytes(f File) []byte {
	if text := f.GetText(); text != "" {
		return []byte(text)
	}
	return f.GetContent()
}

// CheckBuilt rejects files in a form that is not supported yet.
func CheckBuilt(field string, files []*sandboxv1.FileToPlace) error {
	for i, f := range files {
		if f.GetBlob() != nil {
			return rpcerr.NotBuiltField(fmt.Sprintf("%s[%d].blob", field, i), "placing files from blobs")
		}
	}
	return nil
}
