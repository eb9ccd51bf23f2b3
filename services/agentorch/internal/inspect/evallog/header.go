package evallog

import (
	"encoding/json"
	"strconv"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// write writes the members of the log's object, which the caller opens and closes.
func (h *Header) write(w *jsonwrite.Writer) {
	w.IntMember("version", Version)
	w.TextMember("status", string(h.Status))
	h.Eval.write(w)
	h.Plan.write(w)
	if h.Results != nil {
		h.Results.write(w)
	}
	h.Stats.write(w)
	if h.Error != nil {
		w.Key("error")
		h.Error.write(w)
	}
	w.BoolMember("invalidated", false)
}

// start writes the part of the header that is known when an evaluation begins.
func (h *Header) start() []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.IntMember("version", Version)
	h.Eval.write(&w)
	h.Plan.write(&w)
	w.EndObject()
	return w.Bytes()
}

func (e *Eval) write(w *jsonwrite.Writer) {
	w.Key("eval")
	w.BeginObject()
	w.TextMember("eval_id", e.EvalID)
	w.TextMember("run_id", e.RunID)
	w.TextMember("created", Stamp(e.Created))
	w.TextMember("task", e.Task)
	w.TextMember("task_id", e.TaskID)
	w.Key("task_version")
	if n, err := strconv.ParseInt(e.TaskVersion, 10, 64); err == nil || e.TaskVersion == "" {
		w.Int(n)
	} else {
		w.Text(e.TaskVersion)
	}
	w.TextUnlessEmpty("task_file", e.TaskFile)
	w.TextUnlessEmpty("task_display_name", e.DisplayName)
	object(w, "task_attribs", nil)
	object(w, "task_args", e.TaskArgs)
	object(w, "task_args_passed", e.TaskArgs)
	if len(e.Tags) > 0 {
		w.TextList("tags", e.Tags)
	}
	e.Dataset.write(w)
	e.Sandbox.write(w, "sandbox")
	w.TextMember("model", e.Model)
	object(w, "model_generate_config", e.ModelConfig)
	w.TextUnlessEmpty("model_base_url", e.ModelBaseURL)
	object(w, "model_args", e.ModelArgs)
	members(w, "model_roles", e.ModelRoles)
	e.Config.write(w)
	if r := e.Revision; r != nil {
		w.Key("revision")
		w.BeginObject()
		w.TextMember("type", "git")
		w.TextMember("origin", r.Origin)
		w.TextMember("commit", r.Commit)
		w.BoolMember("dirty", r.Dirty)
		w.EndObject()
	}
	w.Key("packages")
	w.BeginObject()
	for _, p := range e.Packages {
		w.TextMember(p.Name, p.Version)
	}
	w.EndObject()
	optional(w, "metadata", e.Metadata)
	if len(e.Scorers) > 0 {
		list(w, "scorers", e.Scorers, func(s Scorer) { s.write(w) })
	}
	w.EndObject()
}

func (d *Dataset) write(w *jsonwrite.Writer) {
	w.Key("dataset")
	w.BeginObject()
	w.TextUnlessEmpty("name", d.Name)
	w.TextUnlessEmpty("location", d.Location)
	w.IntMember("samples", int64(len(d.IDs)))
	list(w, "sample_ids", d.IDs, func(id ID) { id.write(w) })
	w.BoolMember("shuffled", d.Shuffled)
	w.EndObject()
}

func (c *Config) write(w *jsonwrite.Writer) {
	w.Key("config")
	w.BeginObject()
	optional(w, "limit", c.Limit)
	optional(w, "sample_id", c.SampleID)
	optional(w, "sample_shuffle", c.Shuffle)
	w.IntMember("epochs", int64(max(1, c.Epochs)))
	if c.Reducers != nil {
		w.TextList("epochs_reducer", c.Reducers)
	}
	if len(c.FailOnError) == 0 {
		c.FailOnError = json.RawMessage("true")
	}
	w.RawMember("fail_on_error", string(c.FailOnError))
	w.BoolMember("continue_on_fail", c.ContinueOnFail)
	if c.RetryOnError > 0 {
		w.IntMember("retry_on_error", int64(c.RetryOnError))
	}
	w.BoolMember("score_on_error", c.ScoreOnError)
	jsonwrite.OptInt(w, "message_limit", c.MessageLimit)
	jsonwrite.OptInt(w, "token_limit", c.TokenLimit)
	w.TextUnlessEmpty("token_limit_type", c.TokenLimitType)
	jsonwrite.OptInt(w, "turn_limit", c.TurnLimit)
	jsonwrite.OptInt(w, "time_limit", c.TimeLimit)
	jsonwrite.OptInt(w, "working_limit", c.WorkLimit)
	w.OptFloat("cost_limit", c.CostLimit)
	jsonwrite.OptInt(w, "max_samples", c.MaxSamples)
	w.BoolMember("sandbox_cleanup", true)
	w.BoolMember("sandbox_prebuilt", false)
	w.BoolMember("log_samples", true)
	w.BoolMember("log_realtime", true)
	w.BoolMember("log_images", true)
	w.OptBool("log_model_api", c.LogModelAPI)
	w.BoolMember("score_display", true)
	w.EndObject()
}

func (s *Scorer) write(w *jsonwrite.Writer) {
	w.BeginObject()
	w.TextMember("name", s.Name)
	object(w, "options", s.Options)
	list(w, "metrics", s.Metrics, func(m Metric) {
		w.BeginObject()
		w.TextMember("name", m.Name)
		object(w, "options", m.Options)
		w.EndObject()
	})
	object(w, "metadata", nil)
	w.EndObject()
}

func (p *Plan) write(w *jsonwrite.Writer) {
	w.Key("plan")
	w.BeginObject()
	w.TextMember("name", "plan")
	list(w, "steps", p.Steps, func(s Step) {
		w.BeginObject()
		w.TextMember("solver", s.Solver)
		object(w, "params", s.Params)
		object(w, "params_passed", s.Params)
		w.EndObject()
	})
	object(w, "config", p.Config)
	w.EndObject()
}

func (r *Results) write(w *jsonwrite.Writer) {
	w.Key("results")
	w.BeginObject()
	w.IntMember("total_samples", int64(r.Total))
	w.IntMember("completed_samples", int64(r.Completed))
	list(w, "scores", r.Scores, func(e Entry) { e.write(w) })
	if h := r.Headline; h != nil {
		w.Key("headline")
		w.BeginObject()
		w.TextMember("scorer", h.Scorer)
		w.TextMember("score", h.Score)
		w.TextMember("metric", h.Metric)
		w.TextUnlessEmpty("reducer", h.Reducer)
		w.EndObject()
	}
	w.EndObject()
}

func (e *Entry) write(w *jsonwrite.Writer) {
	w.BeginObject()
	w.TextMember("name", e.Name)
	w.TextMember("scorer", e.Scorer)
	w.TextUnlessEmpty("reducer", e.Reducer)
	w.IntMember("scored_samples", int64(e.Scored))
	w.IntMember("unscored_samples", int64(e.Unscored))
	object(w, "params", e.Params)
	w.Key("metrics")
	w.BeginObject()
	for _, v := range e.Metrics {
		w.Key(v.Key)
		w.BeginObject()
		w.TextMember("name", v.Name)
		w.TextUnlessEmpty("group", v.Group)
		w.RawMember("value", Number(v.Value))
		object(w, "params", v.Params)
		w.EndObject()
	}
	w.EndObject()
	w.EndObject()
}

func (s *Stats) write(w *jsonwrite.Writer) {
	w.Key("stats")
	w.BeginObject()
	moment(w, "started_at", s.Started)
	moment(w, "completed_at", s.Completed)
	members(w, "model_usage", s.ModelUsage)
	members(w, "role_usage", s.RoleUsage)
	w.EndObject()
}

// write writes a reduction as an item of a list.
func (r *Reduction) write(w *jsonwrite.Writer) {
	w.BeginObject()
	w.TextMember("scorer", r.Scorer)
	w.TextUnlessEmpty("reducer", r.Reducer)
	list(w, "samples", r.Samples, func(s Reduced) {
		w.BeginObject()
		s.members(w)
		w.Key("sample_id")
		s.ID.write(w)
		w.EndObject()
	})
	w.EndObject()
}
