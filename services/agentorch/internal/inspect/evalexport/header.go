package evalexport

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/version"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/result"
)

// defaultEnvironment is the sandbox that logs speak of.
const defaultEnvironment = "default"

func (l *Log) makeHeader(model int, driver string) *evallog.Header {
	e := l.ledger.state.Eval
	h := &evallog.Header{
		Status: statusOf(e.GetState()),
		Eval:   l.makeEval(model, driver),
		Plan:   l.planOf(model),
		Stats: evallog.Stats{
			Started: moment(e.GetStartTime()), Completed: moment(e.GetEndTime()),
			ModelUsage: usages(l.ledger.usage[model]), RoleUsage: usages(l.ledger.roleUsage[model]),
		},
	}
	// A cancelled evaluation has no results of its own; the log gets the results of its finished samples.
	if e.GetResults() != nil || h.Status == evallog.Cancelled {
		h.Results = resultsOf(l.outcome.Total, l.outcome.Completed, l.outcome.Results)
	}
	if h.Status == evallog.Failed {
		h.Error = errorOf(e.GetError(), e.GetStateReason(), within(e.GetName()))
	}
	return h
}

func statusOf(s agentv1.EvalState) evallog.Status {
	switch s {
	case agentv1.EvalState_EVAL_STATE_SUCCEEDED:
		return evallog.Success
	case agentv1.EvalState_EVAL_STATE_FAILED:
		return evallog.Failed
	case agentv1.EvalState_EVAL_STATE_CANCELLED:
		return evallog.Cancelled
	case agentv1.EvalState_EVAL_STATE_UNSPECIFIED, agentv1.EvalState_EVAL_STATE_PENDING, agentv1.EvalState_EVAL_STATE_RUNNING, agentv1.EvalState_EVAL_STATE_PAUSED:
	}
	return evallog.Started
}

func (l *Log) makeEval(model int, driver string) evallog.Eval {
	e, spec := l.ledger.state.Eval, l.ledger.state.Eval.GetSpec()
	ref := spec.GetModels()[model]
	runID := resource.LastID(e.GetName())
	id := runID
	if len(spec.GetModels()) > 1 {
		id = fmt.Sprintf("%sm%d", runID, model+1)
	}
	log := evallog.Eval{
		EvalID: id, RunID: runID, TaskID: id, Created: moment(e.GetCreateTime()),
		Task: spec.GetTask(), TaskVersion: spec.GetTaskVersion(), TaskFile: spec.GetTaskFile(), DisplayName: spec.GetDisplayName(), TaskArgs: raw(spec.GetTaskArgsJson()),
		Tags: spec.GetTags(), Metadata: raw(spec.GetMetadataJson()),
		Dataset: evallog.Dataset{Name: spec.GetDataset().GetName(), Location: spec.GetDataset().GetLocation(), Shuffled: spec.ShuffleSeed != nil},
		Sandbox: sandboxOf(spec.GetSandboxes()[defaultEnvironment], driver),
		Model:   ref.GetModel(), ModelConfig: readable(chat.ConfigJSON(l.sent(ref, run.FieldModel))), ModelBaseURL: ref.GetBaseUrl(), ModelArgs: raw(ref.GetModelArgsJson()),
		Config:   configOf(spec),
		Packages: []evallog.Package{{Name: "evalfleet", Version: version.String()}},
	}
	if r := spec.GetRevision(); r != nil {
		log.Revision = &evallog.Revision{Origin: r.GetOrigin(), Commit: r.GetCommit(), Dirty: r.GetDirty()}
	}
	for _, sample := range l.samples.All() {
		log.Dataset.IDs = append(log.Dataset.IDs, idOf(sample))
	}
	for _, role := range slices.Sorted(maps.Keys(spec.GetModelRoles())) {
		log.ModelRoles = append(log.ModelRoles, evallog.Member{Name: role, Value: l.roleOf(role, spec.GetModelRoles()[role])})
	}
	for _, scorer := range l.outcome.Scorers {
		s := evallog.Scorer{Name: scorer.Name, Options: scorer.Params}
		for _, m := range scorer.Metrics.Plain {
			s.Metrics = append(s.Metrics, evallog.Metric{Name: m.Name, Options: m.Params})
		}
		log.Scorers = append(log.Scorers, s)
	}
	return log
}

// roleOf is a model that has a role.
func (l *Log) roleOf(name string, ref *agentv1.ModelRef) json.RawMessage {
	role := struct {
		Model   string          `json:"model"`
		Config  json.RawMessage `json:"config"`
		BaseURL string          `json:"base_url,omitempty"`
		Args    json.RawMessage `json:"args,omitempty"`
	}{ref.GetModel(), readable(chat.ConfigJSON(l.sent(ref, run.FieldOfRole(name)))), ref.GetBaseUrl(), raw(ref.GetModelArgsJson())}
	return jsonwrite.Marshal(role)
}

// sandboxOf is a sandbox of a specification; driver is the driver that created it, if known.
func sandboxOf(spec *sandboxv1.SandboxSpec, driver string) *evallog.Sandbox {
	if spec == nil {
		return nil
	}
	return &evallog.Sandbox{Type: cmp.Or(driver, spec.GetDriver(), defaultEnvironment), Config: raw(spec.GetDriverConfigJson())}
}

func configOf(spec *agentv1.EvalSpec) evallog.Config {
	limits := spec.GetLimits()
	c := evallog.Config{
		Epochs: int(spec.GetEpochs().GetCount()), Reducers: spec.GetEpochs().GetReducers(),
		ContinueOnFail: spec.GetContinueOnFail(), RetryOnError: int(spec.GetRetryOnError()), ScoreOnError: spec.GetScoreOnError(),
		MessageLimit: wide(limits.GetMessages(), limits != nil && limits.Messages != nil), TurnLimit: wide(limits.GetTurns(), limits != nil && limits.Turns != nil),
		TokenLimitType: limits.GetTokenFormula(), TimeLimit: wholeSeconds(limits.GetTime()), WorkLimit: wholeSeconds(limits.GetWorkingTime()),
		MaxSamples: wide(spec.GetMaxSamples(), spec.MaxSamples != nil),
	}
	if limits != nil {
		c.TokenLimit, c.CostLimit = limits.Tokens, limits.Cost
	}
	if spec.GetEpochs().GetNoReducers() {
		c.Reducers = []string{}
	}
	if r := spec.GetLimit(); r != nil {
		c.Limit = jsonwrite.Marshal(r.GetEnd())
		if r.GetStart() > 0 {
			c.Limit = jsonwrite.Marshal([]int32{r.GetStart(), r.GetEnd()})
		}
	}
	if ids := spec.GetSampleIds(); len(ids) > 0 {
		c.SampleID = jsonwrite.Marshal(ids)
	}
	if spec.ShuffleSeed != nil {
		c.Shuffle = jsonwrite.Marshal(spec.GetShuffleSeed())
	}
	switch rule := spec.GetFailOnError().GetRule().(type) {
	case *agentv1.FailOnError_Enabled:
		c.FailOnError = jsonwrite.Marshal(rule.Enabled)
	case *agentv1.FailOnError_Threshold:
		c.FailOnError = json.RawMessage(evallog.Number(rule.Threshold))
	}
	c.LogModelAPI = new(spec.GetRecordCalls() == agentv1.RecordCalls_RECORD_CALLS_ALL) // false is failed calls alone.
	return c
}

// sent is the configuration of a model in a field as it is sent to its provider: a log must not claim that answers were
// made with other options.
func (l *Log) sent(ref *agentv1.ModelRef, field string) *modelv1.GenerateConfig {
	return l.as(ref.GetConfig(), func(w *agentv1.EvalWarning) bool {
		return w.GetModel() == ref.GetModel() && (w.GetField() == "" || w.GetField() == field)
	})
}

// as is a configuration as it is sent according to some warnings.
func (l *Log) as(config *modelv1.GenerateConfig, which func(*agentv1.EvalWarning) bool) *modelv1.GenerateConfig {
	for _, w := range l.ledger.state.Eval.GetWarnings() {
		if which(w) {
			config = sentOf(config, w)
		}
	}
	return config
}

// sentOf is a configuration as it is sent according to a warning.
func sentOf(config *modelv1.GenerateConfig, w *agentv1.EvalWarning) *modelv1.GenerateConfig {
	return chat.Changed(chat.Without(config, w.GetUnsentOptions()), w.GetChangedOptions())
}

func (l *Log) planOf(model int) evallog.Plan {
	spec := l.ledger.state.Eval.GetSpec()
	config := l.as(spec.GetConfig(), func(w *agentv1.EvalWarning) bool {
		return w.GetModel() == spec.GetModels()[model].GetModel() && w.GetField() == "" || w.GetField() == run.FieldConfig
	})
	plan := evallog.Plan{Config: readable(chat.ConfigJSON(config))}
	for _, step := range spec.GetSteps() {
		plan.Steps = append(plan.Steps, evallog.Step{Solver: step.GetName(), Params: raw(step.GetParamsJson())})
	}
	return plan
}

func resultsOf(total, completed int, r result.Results) *evallog.Results {
	log := &evallog.Results{Total: total, Completed: completed}
	for _, e := range r.Entries {
		entry := evallog.Entry{Name: e.Name, Scorer: e.Scorer, Reducer: e.Reducer, Scored: e.Scored, Unscored: e.Unscored, Params: e.Params}
		for _, m := range e.Metrics {
			entry.Metrics = append(entry.Metrics, evallog.Value{Key: m.Key, Name: m.Name, Group: m.Group, Value: m.Value, Params: m.Params})
		}
		log.Scores = append(log.Scores, entry)
		if log.Headline == nil && len(log.Scores) == 1 && len(entry.Metrics) > 0 { // As Inspect chooses it.
			log.Headline = &evallog.Headline{Scorer: e.Scorer, Score: e.Name, Metric: entry.Metrics[0].Key, Reducer: e.Reducer}
		}
	}
	return log
}

// reductions are the scores reduced over epochs, if the log has results.
func (l *Log) reductions() []evallog.Reduction {
	if l.header.Results == nil {
		return nil
	}
	var all []evallog.Reduction
	for _, r := range l.outcome.Results.Reductions {
		reduction := evallog.Reduction{Scorer: r.Scorer, Reducer: r.Reducer}
		for _, s := range r.Samples {
			reduction.Samples = append(reduction.Samples, evallog.Reduced{ID: evallog.ID{Text: s.ID.String(), Integer: s.ID.IsInteger()}, Score: scoreOf("", s.Score)})
		}
		all = append(all, reduction)
	}
	return all
}

// errorOf is an error with a non-empty message, and the place where it arose.
func errorOf(e *agentv1.RunError, otherwise string, trace func(*agentv1.RunError) string) *evallog.Error {
	message := cmp.Or(e.GetMessage(), e.GetReason(), otherwise, "no reason was given")
	if e == nil {
		return &evallog.Error{Message: message}
	}
	return &evallog.Error{Message: message, Traceback: trace(e)}
}

// within returns a function that gives errors a traceback with only the place where they arose.
func within(what string) func(*agentv1.RunError) string {
	return func(e *agentv1.RunError) string { return transcript.TracebackText([]string{what}, e) }
}

// readable removes from a configuration the values that the JSON form does not allow, such as an unknown word of an
// enum: they would make the whole log unreadable.
func readable(config json.RawMessage) json.RawMessage {
	if _, err := chat.ParseConfig(config); err == nil {
		return config
	}
	given, err := orderedjson.DecodeObject(config)
	if err != nil {
		return nil
	}
	kept := &orderedjson.Object{}
	for name, value := range given.All() {
		one := &orderedjson.Object{}
		one.Set(name, value)
		if _, err := chat.ParseConfig(orderedjson.Append(nil, one)); err == nil {
			kept.Set(name, value)
		}
	}
	return orderedjson.Append(nil, kept)
}

// usages are usages by name.
func usages(by map[string]*modelv1.ModelUsage) []evallog.Member {
	var all []evallog.Member
	for _, name := range slices.Sorted(maps.Keys(by)) {
		all = append(all, evallog.Member{Name: name, Value: chat.UsageJSON(by[name])})
	}
	return all
}

func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// wholeSeconds rounds a limit up; nil if there is none.
func wholeSeconds(d *durationpb.Duration) *int64 {
	if d == nil {
		return nil
	}
	return new(int64(math.Ceil(d.AsDuration().Seconds())))
}

func wide(n int32, set bool) *int64 {
	if !set {
		return nil
	}
	return new(int64(n))
}

// raw is JSON text as it is; nil if the text is not valid JSON.
func raw(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}
