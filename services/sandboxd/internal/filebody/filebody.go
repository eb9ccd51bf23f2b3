// Package filebody reads what a request has a file hold: bytes or text.
package filebody

import (
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
	for _, f := range files {
		if f.GetBlob() != nil {
			return rpcerr.Wrap(rpcerr.NotBuiltYet("placing files from blobs"), "%s: %s", field, f.GetPath())
		}
	}
	return nil
}
