// Package filebody returns the content of files in requests, which is bytes or text.
package filebody

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
