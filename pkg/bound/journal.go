package bound

// Journals of runs and evaluations. What a journal has accepted can always be read again.
const (
	// JournalEventBytes bounds one event without its large values, which stand apart, in the project's blobs.
	// JournalValuesBytes bounds one with them. A run whose next event would be larger fails with REQUEST_TOO_LARGE, and
	// so does a sample that cannot begin because of it; the evaluation continues. A run that is already ending keeps the
	// reason for which it ends: after a few tries it waits with the reason `fault`.
	JournalEventBytes  = 4 << 20
	JournalValuesBytes = 128 << 20
	// EvalScoreTextBytes bounds what an evaluation keeps of the answer and of the explanation of a score, and of its
	// metadata. A longer text is cut with a mark, and larger metadata is left out. The run and its sample in the log
	// have all of it.
	EvalScoreTextBytes = 64 << 10
	// EvalScoresBytes bounds what an evaluation keeps of the scores of one sample after that. A sample with more fails
	// with REQUEST_TOO_LARGE.
	EvalScoresBytes = 16 << 20
)
