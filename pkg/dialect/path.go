package dialect

// Paths are the paths below which vendors' clients ask. Gemini's have two versions, and some have none.
var Paths = []string{"/v1/", "/v1beta/", "/models/"}
