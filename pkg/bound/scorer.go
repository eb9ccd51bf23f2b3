package bound

// What judges the samples of an evaluation. One that names more is refused, and not made, and so is a run with more
// scorers.
const (
	// Scorers bounds the scorers.
	Scorers = 100
	// Metrics bounds the metrics of a scorer, and those of the evaluation instead of the scorers' own.
	Metrics = 100
	// Reducers bounds the reducers of epochs.
	Reducers = 100
)
