package bound

// Evaluations. One that is over a bound is refused, and not made.
const (
	// EvalRuns bounds the runs of an evaluation, not counting what is tried again: samples × epochs × models.
	EvalRuns = 1_000_000
	// EvalRetries bounds how many more times a sample is tried that fails (retry_on_error).
	EvalRetries = 1000
)
