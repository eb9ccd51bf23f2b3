package bound

// Journals of runs and evaluations. An accepted event can always be read again.
const (
	// JournalEventBytes bounds one event without its large values, which are offloaded to the project's blobs.
	// JournalValuesBytes bounds one with them. A run whose next event would be larger fails with REQUEST_TOO_LARGE, and
	// so does a sample that cannot begin because of it; the evaluation continues. A run that is already ending keeps
	// the reason for which it ends: after a few tries it waits with the reason `fault`.
	JournalEventBytes  = 4 << 20
	JournalValuesBytes = 128 << 20
	// EvalScoreTextBytes bounds the answer, the explanation and the metadata of a score that an evaluation stores. A
	// longer text is cut and marked, and larger metadata is omitted. The run and its sample in the log have all of it.
	EvalScoreTextBytes = 64 << 10
	// EvalScoresBytes bounds the scores of one sample that an evaluation stores, after those cuts. A sample with more
	// fails with REQUEST_TOO_LARGE.
	EvalScoresBytes = 16 << 20
)
