package providertest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// GoldenSetup is the account of a recorded case.
type GoldenSetup struct {
	// APIKey and BaseURL are those of the case; empty if it names none.
	APIKey, BaseURL string
	// Vendor is the address in the place of the vendor's own, of a case that was recorded there.
	Vendor string
	// Service is the part before the first slash of the model's name.
	Service string
	// Root is the address of the recording server.
	Root string
	// Env are the variables that were set.
	Env map[string]string
}

// LookUp returns a variable as config.Load wants it.
func (s GoldenSetup) LookUp(name string) (string, bool) {
	value, ok := s.Env[name]
	return value, ok
}

// goldenCase is the form of a recorded case.
type goldenCase struct {
	Kind        string                     `json:"kind"`
	Model       string                     `json:"model"`
	BaseURL     *string                    `json:"base_url"`
	Env         map[string]string          `json:"env"`
	ModelArgs   json.RawMessage            `json:"model_args"`
	APIKey      string                     `json:"api_key"`
	ModelConfig json.RawMessage            `json:"model_config"`
	Config      json.RawMessage            `json:"config"`
	Messages    json.RawMessage            `json:"messages"`
	Tools       json.RawMessage            `json:"tools"`
	ToolChoice  json.RawMessage            `json:"tool_choice"`
	Direct      bool                       `json:"direct"`
	Prepared    map[string]json.RawMessage `json:"prepared"`
	Requests    []upstreamRequest          `json:"upstream_requests"`
	Responses   []upstreamResponse         `json:"upstream_responses"`
	Output      json.RawMessage            `json:"output"`
	Error       *goldenError               `json:"error"`
}

type goldenError struct {
	How         string   `json:"how"`
	Retryable   bool     `json:"retryable"`
	Kind        string   `json:"kind"`
	RetryAfter  *float64 `json:"retry_after"`
	Status      *int     `json:"status"`
	AuthFailure bool     `json:"auth_failure"`
}

// Golden runs the recorded cases of a provider against a recording server. open makes the provider for a case.
func Golden(t *testing.T, theme string, patterns []string, open func(t testing.TB, setup GoldenSetup) provider.Kind) {
	t.Helper()
	goldentest.Run(t, theme, goldentest.Load(t, patterns...), func(t *goldentest.T, c goldentest.Case) {
		var form goldenCase
		require.NoError(t, c.Decode(&form))
		server := newRecorder(t, form.Responses)
		play(t, c, &form, server, open)
	}, goldentest.Parallel())
}

func play(t *goldentest.T, c goldentest.Case, form *goldenCase, server *recorder, open func(testing.TB, GoldenSetup) provider.Kind) {
	t.Helper()
	given := conversation(t, form)
	setup := GoldenSetup{APIKey: form.APIKey, Root: server.URL(), Env: map[string]string{}}
	setup.Service, _, _ = strings.Cut(form.Model, "/")
	for name, value := range form.Env {
		setup.Env[name] = server.addresses(value)
	}
	switch {
	case form.BaseURL != nil:
		setup.BaseURL = server.addresses(*form.BaseURL)
	case form.Direct:
		setup.Vendor = server.URL() + "/v1"
	}
	args := server.addresses(string(form.ModelArgs))
	if args == "null" {
		args = ""
	}
	var registry provider.Registry
	kind := open(t, setup)
	require.NoError(t, registry.Register(kind))
	model, err := registry.Open(provider.Ref{Project: "p", Model: kind.Name + "/" + form.Model, Args: args})
	if err != nil {
		equalFailure(t, form, server, err)
		return
	}
	prepared, err := prepare.Prepare(given, provider.CapabilitiesOf(model.Provider, given.Config))
	if err != nil {
		equalFailure(t, form, server, err)
		return
	}
	equalPrepared(t, c, form, prepared)
	response, err := model.Generate(t.Context(), &provider.Request{
		Messages: prepared.Messages, Tools: prepared.Tools, ToolChoice: prepared.Choice, Config: prepared.Config, Attempt: 1,
	})
	if form.Kind == "request" {
		equalRequests(t, form, server.Requests())
		if form.Error != nil {
			require.Error(t, err)
		}
		return
	}
	equalPlaces(t, form, server.Requests())
	if err != nil || form.Error != nil {
		equalFailure(t, form, server, err)
		return
	}
	output := decoded(t, chat.OutputJSON(response.Output))
	delete(output.(map[string]any), "time")
	want, got := plain(decoded(t, form.Output)), plain(output)
	freeWording(want, got)
	freeCompletion(want, got)
	t.Equal(want, got, match.EmptyAsAbsent("top_logprobs", "tool_calls")) // the protocol has no empty list of these
}

// freeWording replaces texts that are equivalent to recorded ones with the recorded ones: a parse error that quotes the
// same text of the model, with other wording and blanks, and a server's message without a client library's wrapping.
func freeWording(want, got any) {
	switch w := want.(type) {
	case []any:
		g, _ := got.([]any)
		for i := range min(len(w), len(g)) {
			freeWording(w[i], g[i])
		}
	case map[string]any:
		g, _ := got.(map[string]any)
		for name := range w {
			freeWording(w[name], g[name])
			if library, isText := w[name].(string); isText && quotes(library, g[name]) {
				g[name] = library
			}
		}
		recorded, isText := w["parse_error"].(string)
		said, _ := g["parse_error"].(string)
		quoted := strings.TrimSpace(strings.ReplaceAll(recorded, "<prose>", ""))
		if isText && strings.Contains(said, quoted) {
			g["parse_error"] = recorded
		}
	}
}

// freeCompletion removes the completion of an output if the recorded one is not the text of its first choice. It
// follows from the choices, and the recording program does not count what came before a pause.
func freeCompletion(want, got any) {
	recorded, _ := want.(map[string]any)
	document, err := json.Marshal(recorded)
	if err != nil {
		return
	}
	output, err := chat.ParseOutput(document)
	if err == nil && chat.Text(chat.FirstMessage(output)) != recorded["completion"] {
		delete(recorded, "completion")
		delete(got.(map[string]any), "completion")
	}
}

// quotes reports whether a recorded text is a client library's `Error code: 400 - …` around the message that was given.
func quotes(recorded string, given any) bool {
	message, _ := given.(string)
	recorded = strings.ToLower(recorded)
	return message != "" && strings.HasPrefix(recorded, "error code: ") && strings.Contains(recorded, strings.ToLower(message))
}

// conversation reads the conversation of the case, with the model's configuration below that of the call.
func conversation(t *goldentest.T, form *goldenCase) prepare.Conversation {
	t.Helper()
	messages, err := chat.ParseMessages(form.Messages)
	require.NoError(t, err)
	var tools []*toolv1.ToolInfo
	if len(form.Tools) > 0 && string(form.Tools) != "null" {
		tools, err = chattest.Tools(form.Tools)
		require.NoError(t, err)
	}
	var choice *toolv1.ToolChoice
	if len(form.ToolChoice) > 0 {
		choice, err = chattest.ToolChoice(form.ToolChoice)
		require.NoError(t, err)
	}
	return prepare.Conversation{
		Messages: messages, Tools: tools, Choice: choice, Config: chat.Merge(optionsOf(t, form.ModelConfig), optionsOf(t, form.Config)),
	}
}

func optionsOf(t *goldentest.T, document json.RawMessage) *modelv1.GenerateConfig {
	t.Helper()
	if len(document) == 0 || string(document) == "null" {
		return nil
	}
	c, err := chat.ParseConfig(document)
	require.NoError(t, err)
	return c
}

// equalPrepared compares the provider's input, if the case records that it differs from the given one.
func equalPrepared(t *goldentest.T, c goldentest.Case, form *goldenCase, prepared prepare.Conversation) {
	t.Helper()
	for name := range form.Prepared {
		var got json.RawMessage
		switch name {
		case "messages":
			got = chat.MessagesJSON(prepared.Messages)
		case "tools":
			got = chat.ToolsJSON(prepared.Tools)
		case "tool_choice":
			got = chat.ToolChoiceJSON(prepared.Choice)
		case "config":
			got = chat.ConfigJSON(prepared.Config)
		default:
			t.Skipf("no driver for the prepared %s", name)
		}
		t.Equal(c.At("prepared", name), decoded(t, got), match.EmptyAsAbsent("tool_call_id"))
	}
}

func equalRequests(t *goldentest.T, form *goldenCase, got []upstreamRequest) {
	t.Helper()
	wanted := slices.DeleteFunc(slices.Clone(form.Requests), func(r upstreamRequest) bool { return isProbe(r) || isFileLookup(r) })
	if !slices.ContainsFunc(wanted, isListing) {
		got = slices.DeleteFunc(slices.Clone(got), isListing)
	}
	if slices.ContainsFunc(form.Requests, isFileLookup) && !slices.ContainsFunc(wanted, isUpload) {
		got = slices.DeleteFunc(slices.Clone(got), isUpload)
	}
	require.Len(t, got, len(wanted), "requests to the server")
	for i, want := range wanted {
		require.Equal(t, want.target(), got[i].target())
		t.Equal(want.Query, got[i].Query, match.EmptyAsAbsent("*"))
		for name, value := range want.Headers {
			if strings.HasSuffix(value, " <signature>") {
				value = strings.ReplaceAll(value, "<signature>", signatureOf(got[i].header.Get(name)))
			}
			if key, bearer := strings.CutPrefix(value, "Bearer "); bearer && got[i].header.Get(name) == "" {
				name, value = "x-api-key", key // Anthropic takes a key either way
			}
			t.Equal(value, got[i].header.Get(name))
		}
		t.Equal(plain(want.Body), plain(got[i].Body), match.EmptyAsAbsent("tools", "include", "additionalModelRequestFields", "additionalModelResponseFieldPaths"))
	}
}

// signatureOf is what follows the name of the method in a signed request's authorization.
func signatureOf(authorization string) string {
	_, signature, _ := strings.Cut(authorization, " ")
	return signature
}

// isProbe reports whether a recorded request only finds out what the account may do, which an adapter may know
// otherwise: its input is wording of the recording program.
func isProbe(r upstreamRequest) bool {
	body, _ := r.Body.(map[string]any)
	return body["input"] == "<prose>"
}

// isListing reports whether a request reads what a proxy says of its models and of the key. The recording program reads
// that once, with its first case; each case here has a server of its own, which is asked anew.
func isListing(r upstreamRequest) bool {
	return r.Method == http.MethodGet && (strings.HasSuffix(r.Path, "/model/info") || r.Path == "/key/info")
}

// isFileLookup reports whether a recorded request asks for a file that an earlier case uploaded, which the recording
// program remembers. Here each case uploads its own.
func isFileLookup(r upstreamRequest) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.Path, "/v1") && strings.Contains(r.Path, "/files/")
}

func isUpload(r upstreamRequest) bool { return r.isUpload() }

// equalPlaces compares the targets of requests, of a case about answers: each is one of the recorded targets, since
// there may be fewer attempts.
func equalPlaces(t *goldentest.T, form *goldenCase, got []upstreamRequest) {
	t.Helper()
	var places []string
	for _, want := range form.Requests {
		places = append(places, want.target())
	}
	if len(places) == 0 {
		return
	}
	require.NotEmpty(t, got, "requests to the server")
	for _, request := range got {
		require.Contains(t, places, request.target())
	}
}

// equalFailure compares how a call failed: whether anything was sent, and whether it is retryable.
func equalFailure(t *goldentest.T, form *goldenCase, server *recorder, err error) {
	t.Helper()
	require.NotNil(t, form.Error, "the call failed: %v", err)
	require.Error(t, err)
	if form.Error.How == "before_upstream" {
		require.Empty(t, server.Requests(), "nothing must be sent")
		return
	}
	got := map[string]any{"retryable": provider.ClassOfError(err) != provider.Final}
	want := map[string]any{"retryable": form.Error.Retryable}
	if failure, ok := provider.As(err); ok {
		want["auth_failure"], got["auth_failure"] = form.Error.AuthFailure, failure.Auth
		if form.Error.Kind != "" {
			want["kind"], got["kind"] = form.Error.Kind, map[provider.Class]string{
				provider.Transient: "transient", provider.RateLimit: "rate_limit",
			}[failure.Class]
		}
		if form.Error.RetryAfter != nil {
			want["retry_after"], got["retry_after"] = *form.Error.RetryAfter, failure.RetryAfter.Seconds()
		}
		if form.Error.Status != nil {
			want["status"], got["status"] = *form.Error.Status, failure.Status
		}
	}
	t.Equal(want, got)
}

func decoded(t *goldentest.T, document json.RawMessage) any {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(document, &value))
	return value
}

// schemas are the members that may be a schema in a text.
var schemas = []string{"parameters", "schema"}

// base64URL are the characters of base64 in addresses, each with that of plain base64. Google takes both.
var base64URL = strings.NewReplacer("-", "+", "_", "/")

// plain returns a value with the JSON within texts normalized: arguments of calls, schemas, and details of reasoning in
// a signature. Blanks and escapes in them are the recording program's, and so is the order of the members of a schema.
func plain(value any) any {
	switch v := value.(type) {
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = plain(item)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, member := range v {
			object[name] = plain(member)
			text, ok := member.(string)
			var schema any
			switch {
			case !ok:
			case name == "arguments":
				object[name] = compact(text)
			case name == "data":
				object[name] = base64URL.Replace(text)
			case slices.Contains(schemas, name) && json.Unmarshal([]byte(text), &schema) == nil:
				object[name] = map[string]any{"text of": schema}
			}
		}
		return object
	case string:
		if rest, ok := strings.CutPrefix(v, detailsScheme); ok {
			return detailsScheme + compact(rest)
		}
	}
	return value
}

const detailsScheme = "reasoning-details://"

func compact(text string) string {
	document, err := orderedjson.Decode([]byte(text))
	if err != nil {
		return text
	}
	return string(orderedjson.Append(nil, document))
}
