package bound

// YAML: task files, scripts of mockllm, configuration, arguments of tool calls.
const (
	// YAMLBytes bounds the text of one document. A longer one is refused before it is parsed.
	YAMLBytes = 16 << 20
	// YAMLIndicators bounds the characters of a text that can begin a value (`-?:,[{`), which bounds what the parser
	// allocates. A text with more is refused before it is parsed.
	YAMLIndicators = 1_000_000
	// YAMLNodes bounds the values of a document, keys included. An alias counts as all that it expands to.
	YAMLNodes = 100_000
	// YAMLDepth bounds nesting, through aliases too.
	YAMLDepth = 1000
	// YAMLKeys bounds the keys of one map, with those of the maps that it merges.
	YAMLKeys = 10_000
	// YAMLExpandedBytes bounds the text of all values together. An alias counts as all that it expands to.
	YAMLExpandedBytes = 64 << 20
)

// Scripts of mockllm.
const (
	// ScriptBytes bounds the file or body of a script.
	ScriptBytes = 16 << 20
	// ScriptAnswers bounds the entries and answers of a script.
	ScriptAnswers = 100_000
)

// Data sets. A data set that exceeds a bound is refused with the line, if it has lines.
const (
	// DatasetBytes bounds a data set once it is unpacked.
	DatasetBytes = 256 << 20
	// DatasetRatio bounds how many times its packed size a data set may have unpacked, from DatasetRatioFreeBytes on.
	DatasetRatio = 100
	// DatasetRatioFreeBytes is how much may be unpacked at any ratio.
	DatasetRatioFreeBytes = 16 << 20
	// DatasetRows bounds the rows.
	DatasetRows = 1_000_000
	// DatasetRowBytes bounds one row: a line of JSON Lines, an item of a JSON list, the cells of a CSV record.
	DatasetRowBytes = 16 << 20
	// DatasetRowValues bounds the values of a row, keys included.
	DatasetRowValues = 100_000
	// DatasetValues bounds the values of all rows together, keys included, which bounds the memory that a data set
	// takes.
	DatasetValues = 10_000_000
	// DatasetDepth bounds the nesting of a row's JSON.
	DatasetDepth = 1000
)

// JSON Schemas, and the values that are validated against them: arguments and options of tools, answers.
const (
	// SchemaBytes bounds the text of a schema.
	SchemaBytes = 256 << 10
	// SchemaDepth bounds the nesting of a schema and of a checked value.
	SchemaDepth = 100
	// SchemaDigits bounds the digits and the exponent of a number: to compare longer ones takes seconds.
	SchemaDigits = 1000
	// SchemaApplications bounds the schemas that apply to one value, through references.
	SchemaApplications = 10_000
)

// Bodies of the blob store.
const (
	// BlobWholeBytes bounds a body that the model gateway reads whole: a script, or media of a message.
	BlobWholeBytes = 64 << 20
)

// Files that the command line and the server read whole.
const (
	// TaskFileBytes bounds a task file.
	TaskFileBytes = 16 << 20
	// TaskJSONDepth bounds the nesting of a value of a task file that is passed on as JSON: parameters, metadata,
	// messages.
	TaskJSONDepth = 64
	// TaskJSONBytes bounds the JSON of such a value.
	TaskJSONBytes = 16 << 20
	// ConfigFileBytes bounds a configuration file.
	ConfigFileBytes = 1 << 20
	// PlacedFileBytes bounds a file of this machine that a task file puts into a sandbox.
	PlacedFileBytes = 64 << 20
	// TaskFilesBytes bounds the content of uploaded files in the specification of a task file that a server reads: as
	// much as a request with the specification itself may have.
	TaskFilesBytes = 4 << 20
)
