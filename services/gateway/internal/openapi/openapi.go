// Package openapi serves the generated description of the REST API.
package openapi

import (
	"bytes"
	_ "embed" // For the documents.
	"net/http"
	"slices"
	"sync"
)

var (
	//go:embed spec/evalfleet.swagger.json
	generated []byte
	// uploads are the paths whose requests are files. The mapping of the protocol has none such.
	//go:embed uploads.json
	uploads []byte
)

// document is made when it is first asked for: it is a megabyte.
var document = sync.OnceValue(func() []byte {
	paths, members := []byte(`"paths": {`), bytes.TrimSpace(uploads)
	return bytes.Replace(named(generated), paths, slices.Concat(paths, members[1:len(members)-1], []byte(",")), 1)
})

// Handler serves the document (OpenAPI 2.0). It needs no credential: the document is public with the sources.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document())
	})
}

// named gives a name of its own to each variable of each path. The generator calls both parts of an account's name
// `account`, and has no parameter for a name that contains slashes.
func named(document []byte) []byte {
	paths := bytes.Split(document, []byte("\n    \"/"))
	for i, path := range paths {
		if template, operation, ok := bytes.Cut(path, []byte(`": {`)); ok && i > 0 {
			template, operation = namedPath(template, operation)
			paths[i] = slices.Concat(template, []byte(`": {`), operation)
		}
	}
	return bytes.Join(paths, []byte("\n    \"/"))
}

// withSlashes are the collections whose resources have names with slashes, and what such a name is called.
var withSlashes = map[string]string{"budgets": "budget", "connectionPools": "connectionPool", "models": "model"}

// namedPath is a path with names, and its operations with these parameters.
func namedPath(template, operations []byte) (path, after []byte) {
	if twice := []byte("{account}/{{account}}"); bytes.Contains(template, twice) {
		template = bytes.Replace(template, twice, []byte("{provider}/{account}"), 1)
		operations = bytes.ReplaceAll(operations, []byte("\"name\": \"account\",\n            \"in\": \"path\""), []byte("\"name\": \"provider\",\n            \"in\": \"path\""))
		operations = bytes.ReplaceAll(operations, []byte(`"name": "{account}"`), []byte(`"name": "account"`))
	}
	for collection, name := range withSlashes {
		if parent, ok := bytes.CutSuffix(template, []byte("/"+collection+"/**")); ok {
			parameters := []byte(`"parameters": [`)
			template = []byte(string(parent) + "/" + collection + "/{" + name + "}")
			operations = bytes.Replace(operations, parameters, slices.Concat(parameters, []byte(`
          {
            "name": "`+name+`",
            "description": "Required. It may contain slashes.",
            "in": "path",
            "required": true,
            "type": "string"
          },`)), 1)
		}
	}
	return template, operations
}
