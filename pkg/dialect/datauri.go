package dialect

import (
	"strings"
)

// SplitDataURI cuts a data URI into its media type and its data, which is in base64 where the URI says so. ok is false for anything else.
func SplitDataURI(uri string) (mediaType, data string, ok bool) {
	rest, isData := strings.CutPrefix(uri, "data:")
	head, data, hasData := strings.Cut(rest, ",")
	if !isData || !hasData {
		return "", "", false
	}
	mediaType, _, _ = strings.Cut(head, ";")
	return mediaType, data, true
}
