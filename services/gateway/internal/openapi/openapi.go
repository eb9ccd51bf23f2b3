// Package openapi serves the generated description of the REST API.
package openapi

import (
	"bytes"
	_ "embed" // For the documents.
	"net/http"
	"slices"
)

var (
	//go:embed spec/evalfleet.swagger.json
	generated []byte
	// uploads are the paths whose requests are files. The mapping of the protocol has none such.
	//go:embed uploads.json
	uploads []byte
)

// Handler serves the document (OpenAPI 2.0). It needs no credential: the document is public with the sources.
func Handler() http.Handler {
	paths, members := []byte(`"paths": {`), bytes.TrimSpace(uploads)
	document := bytes.Replace(generated, paths, slices.Concat(paths, members[1:len(members)-1], []byte(",")), 1)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
}
