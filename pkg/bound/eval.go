package bound

// Evaluations. An evaluation that exceeds a bound is refused when it is created.
const (
	// EvalRuns bounds the runs of an evaluation, not counting retries: samples × epochs × models.
	EvalRuns = 1_000_000
	// EvalRetries bounds how many more times a sample is tried that fails (retry_on_error).
	EvalRetries = 1000
	// SamplePatterns bounds the patterns (ids with `*`, `?` or `[`) by which samples are selected. Plain ids have no
	// bound of their own.
	SamplePatterns = 100
	// SamplePatternBytes bounds one of them.
	SamplePatternBytes = 1 << 10
)

// Runs. A run that exceeds a bound is refused when it is created.
const (
	// Steps bounds the steps: solvers and agents.
	Steps = 100
	// Tools bounds the tools of each step, and those of all steps that name none.
	Tools = 1000
)

// Scores.
const (
	// ComparedBytes bounds the comparisons of a scorer: the bytes of the model's answer times the number of targets.
	// Beyond it the score fails with REQUEST_TOO_LARGE. One target may be compared with any answer.
	ComparedBytes = 256 << 20
)

// Templates: texts of solvers and scorers with placeholders.
const (
	// TemplateBytes bounds a text once its placeholders are filled; the program and the files of one check count
	// together. If a sample's own data exceeds it, the evaluation is refused when it is created. If only the model's
	// answer or an earlier step exceeds it, the step or the score fails with REQUEST_TOO_LARGE.
	TemplateBytes = 16 << 20
)
