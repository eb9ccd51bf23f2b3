package corpus

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// Case is one recorded case. It is read-only: a driver that changes a value works on a copy (Expand, Substitute).
type Case struct {
	// Root is the folder of cases, and File the file in it, slash-separated.
	Root, File string
	// Theme groups cases: the file without its ending, the theme that the file names beside its folder, or the folder.
	Theme string
	// ID is unique in its file.
	ID string
	// Raw is the case as it was recorded.
	Raw json.RawMessage
	// Fields is the case decoded, with numbers kept as json.Number.
	Fields map[string]any
}

// Decode reads the case into a struct of the driver's, as json.Unmarshal does.
func (c Case) Decode(v any) error {
	if err := json.Unmarshal(c.Raw, v); err != nil {
		return fmt.Errorf("%s, case %s: %w", c.File, c.ID, err)
	}
	return nil
}

// At returns the value under the nested names, or nil if one is absent or not an object.
func (c Case) At(names ...string) any {
	var value any = c.Fields
	for _, name := range names {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// Op returns the operation that the case records, or "" where its form has none.
func (c Case) Op() string {
	op, _ := c.Fields["op"].(string)
	return op
}

// Path returns the path in the file system of a file beside the case's own.
func (c Case) Path(name string) string {
	return filepath.Join(c.Root, filepath.FromSlash(filepath.Dir(c.File)), filepath.FromSlash(name))
}
