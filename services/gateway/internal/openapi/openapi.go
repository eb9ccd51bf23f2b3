// Package openapi serves the generated description of the REST API.
package openapi

import (
	_ "embed" // For the document.
	"net/http"
)

//go:embed spec/evalfleet.swagger.json
var document []byte

// Handler serves the document (OpenAPI 2.0). It needs no credential: it says what anybody can read in the sources.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
}
