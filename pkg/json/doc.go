// Package json has no code: it documents which of the packages below to use.
//
// Use encoding/json unless one of these needs applies:
//
//   - jsonread decodes long documents in one pass. It has the structs, tags, values and errors of encoding/json.
//     Dialects use it for requests, responses and stream events.
//   - jsonscan finds single members of a document without decoding it. Use it to route or bound a document that is
//     passed on unchanged.
//   - jsonedit exchanges single values deep within a document and keeps all other bytes. Use it for a document that is
//     passed on as it was written, but for these.
//   - jsonwrite encodes by appending, in the order of the calls. Use it where the bytes must be the same in every run:
//     requests to providers, hashed documents, logs.
//   - orderedjson decodes any document to a tree that keeps the order of members and the digits of numbers. Use it to
//     change a part of a document that others wrote: tool arguments, schemas, rows of datasets.
//   - jsoncase spells the names of members in camelCase. Use it for documents of APIs that take both spellings.
//   - lenientjson decodes objects with the conversions of the reference's validation ("10" is a number, "yes" is true)
//     and collects all faults. Use it for messages and configurations that people or other programs wrote.
//
// pkg/jsonschema checks documents against a schema, and pkg/argument repairs the arguments that models write.
package json
