package bound

// Checks: programs of scorers that run in a sandbox.
const (
	// CheckFiles bounds the files that are written for one check, in bytes in all. More are refused; if the task names
	// the files, the evaluation is refused when it is created.
	CheckFiles = 3 << 20
)
