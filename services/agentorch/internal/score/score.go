// Package score judges what a model answered. It holds the model of scores, the port that scorers implement and the
// registry that names them.
//
// The one idea: a scorer decides and never acts. Next gets all that is known about a sample and returns its score, or
// asks for one effect that it needs first (a program run in the sandbox, a grader model's answer). Whoever drives the
// sample performs the effect, journals its result and asks again with it. Most scorers need no effect; they are a Func.
//
// Sub-packages: builtin has the scorers that are pure, metric the numbers over all samples, reduce turns the epochs of
// a sample into one score, result puts these together into an evaluation's results. Nothing here does I/O.
package score

import "encoding/json"

// Reasons why a score is abnormal. Any other text may be a reason too.
const (
	ReasonInvalidFormat = "invalid_response_format" // the model did not answer in the form asked for
	ReasonRefusal       = "refusal"                 // the model declined to answer
	ReasonNoResponse    = "no_response"             // the model's answer was empty
	ReasonGraderFailed  = "grader_failed"           // the grader model gave no usable verdict
	ReasonScoringFailed = "scoring_failed"          // the scorer could not run
)

// Score is the judgement of one scorer on one sample.
type Score struct {
	Value Value `json:"value"`
	// Answer is what the scorer took as the model's answer; nil when it found none.
	Answer *string `json:"answer,omitempty"`
	// Explanation tells people how the score came about; nil when there is nothing to tell.
	Explanation *string `json:"explanation,omitempty"`
	// Reason says to programs why the score is abnormal; empty for a normal one.
	Reason string `json:"reason,omitempty"`
	// Metadata are further facts by name; nil for none.
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
}
