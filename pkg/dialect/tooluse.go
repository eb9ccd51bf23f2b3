package dialect

import (
	"bytes"
	"encoding/json"
	"strings"
)

// StoredJSON returns a document in the form in which arguments and results of a vendor's own tools are stored: its
// members sorted by name, without those that are null. What is no JSON is returned as it is.
func StoredJSON(document []byte, indented bool) string {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return string(document)
	}
	return storedJSON(withoutNulls(value), indented)
}

// StoredValue is StoredJSON, indented, of a value, whose members stay in their order.
func StoredValue(value any) string { return storedJSON(value, true) }

// storedJSON is a value as JSON, with characters of HTML as they are.
func storedJSON(value any, indented bool) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if indented {
		encoder.SetIndent("", "  ")
	}
	if encoder.Encode(value) != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func withoutNulls(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				v[name] = withoutNulls(member)
			}
		}
	}
	return value
}
