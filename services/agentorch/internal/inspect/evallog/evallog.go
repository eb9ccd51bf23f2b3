// Package evallog is the log format of Inspect: the parts of an evaluation's log, and its two forms.
//
//	archive (.eval)                           document (.json)
//	_journal/start.json     version, eval, plan   one object: the header's members,
//	samples/ID_epoch_N.json one sample each       then "samples", then "reductions"
//	summaries.json          all samples, thin
//	reductions.json         reduced scores
//	header.json             all but samples
//
// The package is pure: it knows neither journals nor runs, and writes its input in a fixed order, so that equal logs
// are equal bytes. A [Writer] holds one sample at a time and the summaries of earlier samples. Long texts and repeated
// messages of a sample are written once; see [Condenser].
//
// JSON in logs is not strict JSON: non-finite numbers are written as the bare words NaN, Infinity and -Infinity, since
// a score without a value is NaN.
package evallog

import (
	"encoding/json"
	"time"
)

// Version is the version of the format.
const Version = 2

// Status is the state of an evaluation.
type Status string

// The statuses of a log.
const (
	Started   Status = "started"
	Success   Status = "success"
	Cancelled Status = "cancelled"
	Failed    Status = "error"
)

// Header is a log without its samples.
type Header struct {
	Status  Status
	Eval    Eval
	Plan    Plan
	Results *Results // nil if none were computed
	Stats   Stats
	Error   *Error // nil if there is none
}

// Eval describes the evaluation. Raw members are JSON objects; empty ones are omitted, or written as {} if readers
// require them.
type Eval struct {
	EvalID, RunID, TaskID string
	Created               time.Time
	Task                  string
	TaskVersion           string // written as a number where it is one; empty is 0
	TaskFile, DisplayName string
	TaskArgs              json.RawMessage
	Tags                  []string
	Dataset               Dataset
	Sandbox               *Sandbox
	Model                 string
	ModelConfig           json.RawMessage
	ModelBaseURL          string
	ModelArgs             json.RawMessage
	ModelRoles            []Member
	Config                Config
	Revision              *Revision // nil if there is none
	Packages              []Package
	Metadata              json.RawMessage
	Scorers               []Scorer
}

// Revision is the state of the task's git repository.
type Revision struct {
	Origin, Commit string
	Dirty          bool
}

// Dataset describes the samples.
type Dataset struct {
	Name, Location string
	IDs            []ID // of the samples that the evaluation selected
	Shuffled       bool
}

// Sandbox names a driver of sandboxes and its configuration.
type Sandbox struct {
	Type   string
	Config json.RawMessage
}

// Config sets the evaluation's bounds. Nil members are unset.
type Config struct {
	Limit, SampleID, Shuffle        json.RawMessage
	Epochs                          int
	Reducers                        []string
	FailOnError                     json.RawMessage // true where empty
	ContinueOnFail                  bool
	RetryOnError                    int
	ScoreOnError                    bool
	MessageLimit                    *int64
	TokenLimit                      *int64
	TokenLimitType                  string
	TurnLimit, TimeLimit, WorkLimit *int64
	CostLimit                       *float64
	MaxSamples                      *int64
	LogModelAPI                     *bool
}

// Package is a program with its version.
type Package struct{ Name, Version string }

// Scorer is a scorer with its metrics.
type Scorer struct {
	Name    string
	Options json.RawMessage
	Metrics []Metric
}

// Metric is a metric with its options.
type Metric struct {
	Name    string
	Options json.RawMessage
}

// Plan lists the steps that were applied to each sample.
type Plan struct {
	Steps  []Step
	Config json.RawMessage
}

// Step is a solver or agent with its parameters.
type Step struct {
	Solver string
	Params json.RawMessage
}

// Results are the numbers that came out.
type Results struct {
	Total, Completed int // samples times epochs; those without an error
	Scores           []Entry
	// Headline is the metric that lists show; nil if there is none.
	Headline *Headline
}

// Headline names a metric.
type Headline struct{ Scorer, Score, Metric, Reducer string }

// Entry holds the metrics of a scorer, reducer and key.
type Entry struct {
	Name, Scorer     string
	Reducer          string // empty for the default one
	Scored, Unscored int
	Params           json.RawMessage
	Metrics          []Value
}

// Value is the value of a metric, perhaps NaN.
type Value struct {
	Key, Name, Group string // Group is empty for a whole metric
	Value            float64
	Params           json.RawMessage
}

// Stats are the times of the evaluation and its usage.
type Stats struct {
	Started, Completed    time.Time // zero for not yet
	ModelUsage, RoleUsage []Member
}

// Error is an error. Traceback names its place; if it is empty, the message is written instead.
type Error struct{ Message, Traceback string }

// Fallback is a model that answered in place of another one.
type Fallback struct {
	Model string // the requested one
	By    string // the one that answered
	Count int    // of answers
}

// Member is a member of an object with ordered members.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Sample is a sample in one epoch, with its complete record. Raw members are JSON in the form of the log, condensed by
// the sample's [Condenser].
type Sample struct {
	ID       ID
	Epoch    int             // from 1
	Input    json.RawMessage // a text or messages
	Choices  []string
	Target   json.RawMessage // a text or texts
	Sandbox  *Sandbox
	Files    []string
	Setup    string
	Messages json.RawMessage
	// MessageCount is the number of Messages.
	MessageCount          int
	Output                json.RawMessage
	Scores                []Score
	Metadata              json.RawMessage
	Store                 []Member
	Events                []json.RawMessage
	ModelUsage, RoleUsage []Member
	Fallbacks             []Fallback
	Started, Completed    time.Time
	TotalTime, WorkTime   time.Duration
	UUID                  string
	Error                 *Error
	Retries               []Error // those of earlier attempts
	Limit                 *Limit
	Turns                 int
	Bounds                Bounds
	// Condensed holds the texts and messages that Input, Messages and Events refer to.
	Condensed *Condenser
}

// Bounds are the limits of a sample.
type Bounds struct {
	Tokens                *int64
	TokenType             string
	TokensUsed            *int64
	Messages, TimeSeconds *int64
}

// Limit is the bound that ended a sample.
type Limit struct {
	Type   string
	Limit  float64
	Reason string
}

// Score is the judgement of one scorer on a sample.
type Score struct {
	Name                string
	Value               json.RawMessage // in the form of the log: NaN for unscored
	Answer, Explanation *string
	Reason              string
	Metadata            json.RawMessage
}

// Reduction are the reduced scores of a scorer and reducer.
type Reduction struct {
	Scorer, Reducer string
	Samples         []Reduced
}

// Reduced is the reduced score of one sample.
type Reduced struct {
	ID ID
	Score
}
