// Package score judges answers of models. It holds the model of scores, the port that scorers implement and the
// registry of their names.
//
// The main idea: a scorer decides and never acts. Next gets all facts about a sample and returns its score, or requests
// one effect that it needs first (a program run in the sandbox, a grader model's answer). The engine performs the
// effect, journals its result and calls Next again with it. Most scorers need no effect; they are a Func.
//
// Sub-packages: builtin has the pure scorers, metric computes numbers over all samples, reduce turns the epochs of a
// sample into one score, result combines these into an evaluation's results. Nothing here does I/O.
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
	// Answer is the text that the scorer took as the model's answer; nil if it found none.
	Answer *string `json:"answer,omitempty"`
	// Explanation explains the score to people; nil if there is nothing to explain.
	Explanation *string `json:"explanation,omitempty"`
	// Reason is the machine-readable reason of an abnormal score; empty for a normal one.
	Reason string `json:"reason,omitempty"`
	// Metadata are further facts by name; nil if there are none.
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
}
