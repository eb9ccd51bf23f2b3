package provider

import (
	"net/http"
	"strings"
)

// Upstream is an API that takes requests in a vendor's format byte for byte: where to send them, and on whose account.
type Upstream struct {
	// Dialect is the format, such as `openai-chat`.
	Dialect string
	// Provider is the name for errors.
	Provider string
	// URL is where requests are posted. In a dialect that has the method in the address, a colon and the method follow.
	URL string
	// Model is the name by which the API knows the model.
	Model string
	// HTTP makes the requests. It follows no redirects.
	HTTP *http.Client
	// Authorize sets the account's credential and headers on a request, replacing present ones.
	Authorize func(http.Header)
	// Refused is what an answer that refuses a request means: its status, its header and the beginning of its body.
	Refused func(status int, header http.Header, body []byte) *Error
	// LacksPath reports whether a refusal of a request below the API, such as a question for a number of tokens, means
	// that the server does not know its path; nil: none means that.
	LacksPath func(*Error) bool
	// Sealer is who reads the seals of this API's reasoning; empty: that of the model's capabilities.
	Sealer string
}

// Below returns the address of a path below an address. Each may have a query, of which the new one has both.
func Below(address, path string) string {
	address, query, asked := strings.Cut(address, "?")
	path, more, wanted := strings.Cut(path, "?")
	if address += path; !asked && !wanted {
		return address
	}
	if asked && wanted {
		query += "&"
	}
	return address + "?" + query + more
}
