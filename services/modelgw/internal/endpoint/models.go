package endpoint

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/settings"
)

// model is a model as lists of vendors describe one. What is not known of it is zero.
type model struct {
	name, owner string
	facts       modeldata.Model
}

// released is the beginning of the day on which a model came out, in UTC. Where it is not known, it is the beginning of
// time: the formats of OpenAI and Anthropic have no other way to leave it out.
func (m model) released() time.Time {
	day, err := time.Parse(time.DateOnly, m.facts.Released)
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return day
}

// display is the name for people.
func (m model) display() string { return cmp.Or(m.facts.Display, m.name) }

// open opens the model of a request by the name that [served] returns. An unknown model is answered as the vendor does,
// with the way to list the models.
func (e *Endpoints) open(x *exchange, name string) (*provider.Model, error) {
	m, err := e.deps.Registry.Open(provider.Ref{Project: x.project, Model: name, Account: x.account})
	_, _, malformed := provider.SplitName(name)
	unknown := rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND)
	if fault, wrong := wrongName(err); wrong && malformed == nil && !unknown {
		return nil, unknownModel(cut(fault))
	}
	if malformed != nil || unknown {
		return nil, unknownModel("the model `" + cut(name) + "` is not known here; write it as <provider>/<model>, such as openai/gpt-4o. GET /v1/models lists those that are known")
	}
	return m, err
}

// served returns the model that serves a name.
func served(aliases map[string]string, name string) string {
	best, model := -1, name
	for alias, served := range aliases {
		stem, pattern := strings.CutSuffix(alias, "*")
		switch {
		case alias == name:
			return served
		case pattern && strings.HasPrefix(name, stem) && len(stem) > best:
			best, model = len(stem), served
		}
	}
	return model
}

func unknownModel(message string) error {
	return &refusal{Failure: dialect.Failure{Status: http.StatusNotFound, Cause: dialect.UnknownModel, Param: modelMember, Message: message}}
}

// wrongName is a provider's error for an unknown model name.
func wrongName(err error) (said string, wrong bool) {
	fault, ok := rpcerr.As(err)
	if !ok || fault.Code != codes.InvalidArgument || !slices.ContainsFunc(fault.Fields, func(f rpcerr.Field) bool { return f.Path == modelMember }) {
		return "", false
	}
	return fault.Message, true
}

// maxNamed bounds how much of a name an error repeats.
const maxNamed = 200

func cut(name string) string {
	if len(name) <= maxNamed {
		return name
	}
	return strings.ToValidUTF8(name[:maxNamed], "") + "…"
}

// listModels lists the aliases, and the models of providers that have an account. Providers accept other names too.
func (e *Endpoints) listModels(_ context.Context, x *exchange) error {
	var all []model
	now := e.deps.Settings.Get()
	aliases := now.Aliases
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		if owner, _, _ := strings.Cut(aliases[name], "/"); !strings.HasSuffix(name, "*") {
			all = append(all, described(now, name, owner, aliases[name]))
		}
	}
	for _, kind := range e.deps.Registry.Kinds() {
		if len(kind.Accounts) > 0 && !slices.ContainsFunc(kind.Accounts, (*modelv1.Account).GetUsable) {
			continue
		}
		for _, name := range now.Data.Current(kind.Name, kind.Models, time.Now()) {
			full := kind.Name + "/" + name
			all = append(all, described(now, full, kind.Name, full))
		}
	}
	list := page{models: all}
	if x.paged != nil {
		var err error
		if list, err = x.paged(x.request.URL.Query(), all); err != nil {
			return err
		}
	}
	return x.send(http.StatusOK, x.list(list))
}

func (e *Endpoints) getModel(_ context.Context, x *exchange) error {
	now := e.deps.Settings.Get()
	name := x.request.PathValue("model")
	by := served(now.Aliases, name)
	m, err := e.open(x, by)
	if err != nil {
		return err
	}
	return x.send(http.StatusOK, x.entry(described(now, name, m.Kind.Name, by)))
}

// described is a model with what is known of the one that serves it.
func described(now *settings.Settings, name, owner, served string) model {
	facts, _, _ := now.Data.Describe(served)
	return model{name, owner, facts}
}

// writeEntries writes the member that lists models.
func writeEntries(w *jsonwrite.Writer, member string, models []model, entry func(model) []byte) {
	w.Key(member)
	w.BeginList()
	for _, m := range models {
		w.Raw(string(entry(m)))
	}
	w.EndList()
}

func openaiModels(list page) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("object", "list")
	writeEntries(&w, "data", list.models, openaiModel)
	w.EndObject()
	return w.Bytes()
}

func openaiModel(m model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("id", m.name)
	w.TextMember("object", "model")
	w.IntMember("created", m.released().Unix())
	w.TextMember("owned_by", m.owner)
	w.EndObject()
	return w.Bytes()
}

func anthropicModels(list page) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	models := list.models
	writeEntries(&w, "data", models, anthropicModel)
	w.BoolMember("has_more", list.more)
	if len(models) > 0 {
		w.TextMember("first_id", models[0].name)
		w.TextMember("last_id", models[len(models)-1].name)
	}
	w.EndObject()
	return w.Bytes()
}

func anthropicModel(m model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("type", "model")
	w.TextMember("id", m.name)
	w.TextMember("display_name", m.display())
	w.TextMember("created_at", m.released().Format(time.RFC3339))
	w.EndObject()
	return w.Bytes()
}

func geminiModels(list page) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	writeEntries(&w, "models", list.models, geminiModel)
	if list.more {
		w.TextMember("nextPageToken", list.models[len(list.models)-1].name)
	}
	w.EndObject()
	return w.Bytes()
}

func geminiModel(m model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("name", gemini.ModelPrefix+m.name)
	w.TextMember("displayName", m.display())
	if input := cmp.Or(m.facts.Input, m.facts.Context); input > 0 {
		w.IntMember("inputTokenLimit", input)
	}
	if m.facts.Output > 0 {
		w.IntMember("outputTokenLimit", m.facts.Output)
	}
	w.Key("supportedGenerationMethods")
	w.BeginList()
	for _, method := range []string{methodGenerate, methodStream, methodCount} {
		w.Text(method)
	}
	w.EndList()
	w.EndObject()
	return w.Bytes()
}
