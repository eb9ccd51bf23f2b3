package endpoint

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// model is a model as lists of vendors name one.
type model struct{ name, owner string }

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
		return nil, unknownModel("the model `" + cut(name) + "` is not known here; write it as <provider>/<model>, such as openai/gpt-4o. GET /v1/models lists models that are")
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
	aliases := e.deps.Settings.Get().Aliases
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		if owner, _, _ := strings.Cut(aliases[name], "/"); !strings.HasSuffix(name, "*") {
			all = append(all, model{name, owner})
		}
	}
	for _, kind := range e.deps.Registry.Kinds() {
		if len(kind.Accounts) > 0 && !slices.ContainsFunc(kind.Accounts, (*modelv1.Account).GetUsable) {
			continue
		}
		for _, name := range kind.Models {
			all = append(all, model{kind.Name + "/" + name, kind.Name})
		}
	}
	return x.send(http.StatusOK, x.list(all))
}

func (e *Endpoints) getModel(_ context.Context, x *exchange) error {
	name := x.request.PathValue("model")
	m, err := e.open(x, served(e.deps.Settings.Get().Aliases, name))
	if err != nil {
		return err
	}
	return x.send(http.StatusOK, x.entry(model{name, m.Kind.Name}))
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

func openaiModels(models []model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("object", "list")
	writeEntries(&w, "data", models, openaiModel)
	w.EndObject()
	return w.Bytes()
}

func openaiModel(m model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("id", m.name)
	w.TextMember("object", "model")
	w.IntMember("created", 0)
	w.TextMember("owned_by", m.owner)
	w.EndObject()
	return w.Bytes()
}

func anthropicModels(models []model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	writeEntries(&w, "data", models, anthropicModel)
	w.BoolMember("has_more", false)
	if len(models) > 0 {
		w.TextMember("first_id", models[0].name)
		w.TextMember("last_id", models[len(models)-1].name)
	}
	w.EndObject()
	return w.Bytes()
}

// anthropicModel writes a model. When it came out is not known, for which the format takes the beginning of time.
func anthropicModel(m model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("type", "model")
	w.TextMember("id", m.name)
	w.TextMember("display_name", m.name)
	w.TextMember("created_at", "1970-01-01T00:00:00Z")
	w.EndObject()
	return w.Bytes()
}

func geminiModels(models []model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	writeEntries(&w, "models", models, geminiModel)
	w.EndObject()
	return w.Bytes()
}

func geminiModel(m model) []byte {
	var w jsonwrite.Writer
	w.BeginObject()
	w.TextMember("name", gemini.ModelPrefix+m.name)
	w.TextMember("displayName", m.name)
	w.Key("supportedGenerationMethods")
	w.BeginList()
	for _, method := range []string{methodGenerate, methodStream, methodCount} {
		w.Text(method)
	}
	w.EndList()
	w.EndObject()
	return w.Bytes()
}
