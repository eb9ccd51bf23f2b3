package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/bound"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/template"
)

// file is a file that the check needs: a text with placeholders, or bytes.
type file struct {
	text  string
	bytes []byte
	mode  uint32 // 0: the default
}

// UnmarshalJSON reads a text, or an object with text or base64 and perhaps an octal mode.
func (f *file) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &f.text) == nil {
		return nil
	}
	var o struct {
		Text   *string `json:"text"`
		Base64 []byte  `json:"base64"`
		Mode   string  `json:"mode"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil || (o.Text == nil) == (o.Base64 == nil) {
		return errors.New("want a text, or an object with text or base64, and mode")
	}
	if o.Text != nil {
		f.text = *o.Text
	}
	f.bytes = o.Base64
	if o.Mode != "" {
		bits, err := strconv.ParseUint(o.Mode, 8, 9)
		if err != nil {
			return errors.New("mode must be octal, such as 755, not " + o.Mode)
		}
		f.mode = uint32(bits)
	}
	return nil
}

// checkFiles refuses files that cannot be placed.
func checkFiles(files map[string]file) error {
	size := 0
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if !filepath.IsLocal(path) || filepath.Clean(path) == "." {
			return param.Invalid("files", "%q is not a path below the check's folder", path)
		}
		size += len(files[path].text) + len(files[path].bytes)
	}
	if size > bound.CheckFiles {
		return param.Invalid("files", "are larger than %d bytes; build larger ones into the image, or place them with the sandbox's files", bound.CheckFiles)
	}
	return nil
}

// texts are the texts that hold placeholders.
func texts(files map[string]file) string {
	var all strings.Builder
	for _, path := range slices.Sorted(maps.Keys(files)) {
		all.WriteString(files[path].text)
	}
	return all.String()
}

// contain reports whether a file has a text in it.
func contain(files map[string]file, text string) bool {
	for _, f := range files {
		if strings.Contains(f.text, text) || bytes.Contains(f.bytes, []byte(text)) {
			return true
		}
	}
	return false
}

// filled returns the files in the order of their paths, with the placeholders filled in.
func filled(files map[string]file, values template.Values, room *template.Room) ([]*sandboxv1.FileToPlace, error) {
	var out []*sandboxv1.FileToPlace
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		content := f.bytes
		if content == nil {
			text, err := room.Program(f.text, values)
			if err != nil {
				return nil, rpcerr.In("params_json/files/"+path, err)
			}
			content = []byte(text)
		}
		out = append(out, &sandboxv1.FileToPlace{Path: path, Body: &sandboxv1.FileToPlace_Content{Content: content}, Mode: f.mode})
	}
	return out, nil
}
