package bound

// The scoring of an evaluation. An evaluation that exceeds a bound is refused when it is created, and so is a run with
// more scorers.
const (
	// Scorers bounds the scorers.
	Scorers = 100
	// Metrics bounds the metrics of a scorer, and those of the evaluation instead of the scorers' own.
	Metrics = 100
	// Reducers bounds the reducers of epochs.
	Reducers = 100
)
