package bound

// Checks: programs of scorers that run in a sandbox.
const (
	// CheckFiles bounds the files that are placed for one check, in bytes in all. More are refused, where the task
	// names them before the evaluation is made.
	CheckFiles = 3 << 20
)
