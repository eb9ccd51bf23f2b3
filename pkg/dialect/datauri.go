package dialect

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// SplitDataURI splits a data URI into its media type and its data, which is in base64 if the URI declares it. ok is
// false for any other input.
func SplitDataURI(uri string) (mediaType, data string, ok bool) {
	head, data, ok := cutDataURI(uri)
	mediaType, _, _ = strings.Cut(head, ";")
	return mediaType, data, ok
}

func cutDataURI(uri string) (head, data string, ok bool) {
	rest, isData := strings.CutPrefix(uri, "data:")
	head, data, hasData := strings.Cut(rest, ",")
	if !isData || !hasData {
		return "", "", false
	}
	return head, data, true
}

// CheckMedia fails on media that is neither a data URI in base64 nor the address of something on the web. Nothing is
// fetched here: the server of the request decides about addresses.
func CheckMedia(param, uri string) error {
	if strings.HasPrefix(uri, "data:") {
		return CheckDataURI(param, uri)
	}
	if !IsAddress(uri) {
		return Invalid(param, "is neither data:<media type>;base64,<data> nor an http address")
	}
	return nil
}

// IsAddress reports whether media is the address of something on the web, http or https.
func IsAddress(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != ""
}

// CheckInline fails on an address that is not a data URI.
func CheckInline(param, uri string) error {
	if !strings.HasPrefix(uri, "data:") {
		return NotSupported(param, "is not fetched here; give the data itself, in base64")
	}
	return CheckDataURI(param, uri)
}

// CheckDataURI fails on a data URI that is not in base64: vendors accept no other, and without the check their refusal
// would look like a vendor's failure. Addresses of other kinds pass.
func CheckDataURI(param, uri string) error {
	if !strings.HasPrefix(uri, "data:") {
		return nil
	}
	head, data, ok := cutDataURI(uri)
	if !ok || !strings.HasSuffix(head, ";base64") {
		return Invalid(param, "is no data URI in base64; write data:<media type>;base64,<data>")
	}
	return CheckBase64(param, data)
}

// CheckBase64 fails on data that is not in base64 with padding (RFC 4648, section 4). Line ends within it are fine.
func CheckBase64(param, data string) error {
	digits, padding := 0, 0
	for i := range len(data) {
		switch kind := base64Bytes[data[i]]; {
		case kind == base64Digit && padding == 0:
			digits++
		case kind == base64Padding:
			padding++
		case kind != base64LineEnd:
			return Invalid(param, "is not in base64: byte %d does not belong there", i)
		}
	}
	if digits == 0 || padding > 2 || (digits+padding)%4 != 0 {
		return Invalid(param, "is not in base64: it has %d digits and %d bytes of padding", digits, padding)
	}
	return nil
}

// The value of a byte in base64.
const (
	base64Foreign = iota
	base64Digit
	base64Padding
	base64LineEnd
)

var base64Bytes = func() (kinds [256]uint8) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		kinds[c] = base64Digit
	}
	kinds['='], kinds['\r'], kinds['\n'] = base64Padding, base64LineEnd, base64LineEnd
	return kinds
}()

// StandardBase64 returns base64 in the usual alphabet and with its padding; any other text unchanged.
func StandardBase64(encoded string) string {
	if len(encoded)%4 == 0 && !strings.ContainsAny(encoded, "-_") {
		return encoded
	}
	plain := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(encoded), "=")
	raw, err := base64.RawStdEncoding.DecodeString(plain)
	if err != nil {
		return encoded
	}
	return base64.StdEncoding.EncodeToString(raw)
}
