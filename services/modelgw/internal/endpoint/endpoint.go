// Package endpoint serves models in the formats of vendors' own APIs, so that their clients need only another base URL.
//
// There are two lanes, chosen once per request. A request for a model whose provider speaks the client's format is
// relayed as bytes: a scan finds the few values that limits and accounts need, the model's name is replaced, and the
// answer streams back unchanged while a side reader extracts its usage (direct.go). Any other request is converted to
// the canonical form, passes through the pipeline of every other call, and its answer is encoded in the client's format
// (convert.go).
//
// pkg/dialect defines the vendors' formats; the table of the served formats is in format.go.
package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/auth"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/httpdeadline"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/webfetch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/settings"
)

// Config sets the endpoints up.
type Config struct {
	// MaxBodyBytes bounds the body of a request. Default 32 MiB.
	MaxBodyBytes int64 `yaml:"max_body_bytes" env:"EVALFLEET_MODELGW_ENDPOINTS_MAX_BODY_BYTES"`
	// WriteTimeout is how long a client may leave an answer unread before the call is cancelled. Zero is no bound.
	// Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout" env:"EVALFLEET_MODELGW_ENDPOINTS_WRITE_TIMEOUT"`
	// MaxRetries is how often a failed call is tried again, as long as nothing of its answer has been sent. Default 2,
	// as the vendors' own clients do.
	MaxRetries int `yaml:"max_retries" env:"EVALFLEET_MODELGW_ENDPOINTS_MAX_RETRIES"`
	// MaxRetryWait is how long a vendor may ask to wait before a call is tried again. If it asks for more, the client
	// gets the error at once, since it would have left before the end of the wait. Zero is no bound. Default 1m.
	MaxRetryWait time.Duration `yaml:"max_retry_wait" env:"EVALFLEET_MODELGW_ENDPOINTS_MAX_RETRY_WAIT"`
	// Connections bound the connections to an account that requests to the endpoints begin.
	Connections Connections `yaml:"connections"`
	// Aliases are further names of models, each with the model that serves it, such as `gpt-5: openai/gpt-5`. A star at
	// the end of a name matches any rest; of several that match, the longest counts. An alias has precedence over a
	// model's own name.
	Aliases map[string]string `yaml:"aliases"`
	// LeaveOut are options that are left out where a model does not take them, in place of a refusal: for programs that
	// cannot be told to leave them out. Any of temperature, top_p, top_k, frequency_penalty, presence_penalty,
	// logit_bias and verbosity. The header Evalfleet-Unsent of an answer names what was left out. Default none.
	// Requests in Gemini's format are always treated so for temperature, top_p and top_k, and those of the Responses
	// API for verbosity.
	LeaveOut []string `yaml:"leave_out" env:"EVALFLEET_MODELGW_ENDPOINTS_LEAVE_OUT"`
	// FetchMedia sets from where images and documents are fetched that a request names by their address, where the
	// model's provider does not fetch them.
	FetchMedia webfetch.Config `yaml:"fetch_media"`
}

// SetDefaults sets the fields whose default is not zero.
func (c *Config) SetDefaults() {
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 32<<20)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.MaxRetries = cmp.Or(c.MaxRetries, 2)
	c.MaxRetryWait = cmp.Or(c.MaxRetryWait, time.Minute)
	c.Connections.SetDefaults()
	c.FetchMedia.SetDefaults()
}

// Validate refuses bounds that make no sense.
func (c *Config) Validate() error {
	var faults []error
	if c.MaxBodyBytes <= 0 {
		faults = append(faults, errors.New("max_body_bytes: must be above 0"))
	}
	if c.WriteTimeout < 0 {
		faults = append(faults, errors.New("write_timeout: must not be negative; 0 is no bound"))
	}
	if c.MaxRetries < 0 {
		faults = append(faults, errors.New("max_retries: must not be negative; 0 tries once"))
	}
	if c.MaxRetryWait < 0 {
		faults = append(faults, errors.New("max_retry_wait: must not be negative; 0 is no bound"))
	}
	if err := c.Connections.Validate(); err != nil {
		faults = append(faults, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Aliases)) {
		if strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			faults = append(faults, fmt.Errorf("aliases.%s: a star stands for any rest of a name, so that it can only be at the end", name))
		}
		if _, _, err := provider.SplitName(c.Aliases[name]); err != nil || name == "" {
			faults = append(faults, fmt.Errorf("aliases.%s: %q is no model; write <provider>/<model>", name, c.Aliases[name]))
		}
	}
	for _, option := range c.LeaveOut {
		if !slices.Contains(wishes, option) {
			faults = append(faults, fmt.Errorf("leave_out: %q is none of %s", option, strings.Join(wishes, ", ")))
		}
	}
	if err := c.FetchMedia.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("fetch_media.%w", err))
	}
	return errors.Join(faults...)
}

// Models answers calls in the canonical form.
type Models interface {
	// Answer answers at once. It fails where the wait before another attempt would be longer than maxWait.
	Answer(ctx context.Context, r *modelv1.GenerateRequest, maxWait time.Duration) (*modelv1.GenerateResponse, error)
	// Follow is Answer as a stream, with the completed answer last. It does not restart an answer after a piece has
	// been delivered, unless the request has a key.
	Follow(ctx context.Context, r *modelv1.GenerateRequest, maxWait time.Duration, emit func(*modelv1.StreamGenerateResponse) error) error
	// CountTokens counts the tokens of a request.
	CountTokens(ctx context.Context, r *modelv1.CountTokensRequest) (*modelv1.CountTokensResponse, error)
}

// Deps are the dependencies of the endpoints. All but Fetch, Settings, Metrics and Traces are required.
type Deps struct {
	// Auth knows the callers.
	Auth auth.Authenticator
	// Registry opens models.
	Registry *provider.Registry
	// Models serves the lane through the canonical form.
	Models Models
	// Fetch fetches media; nil refuses addresses that the provider does not fetch.
	Fetch Fetcher
	// Settings are the aliases, in place of those of [Config], and the fallbacks; nil: there are none but those.
	Settings *settings.Current
	// Stages wrap each relayed call: budget, retry, admission, the outermost first.
	Stages []generate.Stage
	// Asking wrap each relayed question for a number of tokens: retry, admission, a bound of its time.
	Asking []generate.Stage
	// AttemptTimeout bounds one attempt of such a call; zero is none.
	AttemptTimeout time.Duration
	// Metrics counts calls; nil counts nowhere.
	Metrics *telemetry.CallMetrics
	// Traces makes spans of calls; nil makes none.
	Traces *telemetry.Traces
	// Logger logs. Prompts and answers are never logged.
	Logger *slog.Logger
}

// Endpoints serve vendors' shapes.
type Endpoints struct {
	cfg  Config
	deps Deps
	mux  http.ServeMux
	// byPath has the routes of one path alone: a look there takes a fifth of the mux's time.
	byPath map[string]http.HandlerFunc
	// bounds are what the operator decides about each call, as options of its configuration.
	bounds *modelv1.GenerateConfig
	// fetching has an element for each request whose media is fetched.
	fetching chan struct{}
	// withheld are the kinds of tools of which was said that they are withheld.
	withheld sync.Map
}

// New returns the endpoints, which are an http.Handler for all below dialect.Paths.
func New(cfg Config, deps Deps) *Endpoints {
	if deps.Metrics == nil {
		deps.Metrics = telemetry.NewCallMetrics(nil)
	}
	e := &Endpoints{cfg: cfg, deps: deps, byPath: map[string]http.HandlerFunc{}, fetching: make(chan struct{}, fetching)}
	e.bounds = &modelv1.GenerateConfig{MaxRetries: new(int32(cfg.MaxRetries)), AdaptiveConnections: cfg.Connections.adaptive()}
	if deps.Settings == nil {
		e.deps.Settings = settings.New(settings.Settings{Aliases: cfg.Aliases})
	}
	for _, route := range e.routes() {
		handler := e.serve(route)
		e.mux.HandleFunc(route.path, handler)
		if !strings.ContainsAny(route.path, "{}") && !strings.HasSuffix(route.path, "/") {
			e.byPath[route.path] = handler
		}
	}
	return e
}

// bound sets what the operator decides about a call, in either lane.
func (e *Endpoints) bound(call *modelv1.GenerateConfig) {
	call.MaxRetries, call.AdaptiveConnections = e.bounds.MaxRetries, e.bounds.AdaptiveConnections
}

// ServeHTTP implements http.Handler.
func (e *Endpoints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler, ok := e.byPath[r.URL.Path]; ok && r.URL.RawPath == "" { // The mux knows what escapes divide.
		handler(w, r)
		return
	}
	e.mux.ServeHTTP(w, r)
}

// route is a path that is served.
type route struct {
	method, path string
	// format selects the format of answers and errors.
	format func(*http.Request) *format
	serve  func(context.Context, *exchange) error
}

func (e *Endpoints) routes() []route {
	always := func(f *format) func(*http.Request) *format { return func(*http.Request) *format { return f } }
	return []route{
		{http.MethodPost, "/v1/chat/completions", always(chatCompletions), e.generate},
		{http.MethodPost, "/v1/responses", always(responses), e.generate},
		{http.MethodPost, "/v1/responses/input_tokens", always(responses), e.count},
		{http.MethodPost, "/v1/responses/compact", always(responses), e.compact},
		{http.MethodPost, "/v1/messages", always(messages), e.generate},
		{http.MethodPost, "/v1/messages/count_tokens", always(messages), e.count},
		{http.MethodGet, "/v1/models", formatOf, e.listModels},
		{"", "/v1/models/{model...}", formatOfModel, e.modelOrMethod},
		{http.MethodGet, "/v1beta/models", always(generateContent), e.listModels},
		{"", "/v1beta/models/{model...}", always(generateContent), e.modelOrMethod},
		{"", "/v1beta/{model...}", always(generateContent), e.method},
		{"", "/models/{model...}", always(generateContent), e.modelOrMethod},
		{"", "/", formatOf, notSpoken},
	}
}

// exchange is one request and its answer.
type exchange struct {
	*format
	request *http.Request
	out     *httpdeadline.Writer
	// id names the request in logs and in the answer.
	id    string
	start time.Time
	// begun reports whether part of the answer has been sent.
	begun bool
	// triesAgain reports whether calls are retried here, so that the client need not retry.
	triesAgain bool
	// project and account are named by the client.
	project, account string
	// fallback means that the model of the request has failed, and that another one is to answer.
	fallback bool
	// compacts means that nothing but a compaction is asked for.
	compacts bool
	// address is what the address of the request says beside its format; zero in formats that have all in the body.
	address address
}

// Headers of the platform.
const (
	// projectHeader names the project on whose behalf a call is made.
	projectHeader = "Evalfleet-Project"
	// accountHeader names the provider's account.
	accountHeader = "Evalfleet-Account"
	// cacheHeader switches the response cache on: how long an answer is kept, such as 1W.
	cacheHeader = "Evalfleet-Cache"
	// modelHeader of an answer is the model that gave it in place of the requested one.
	modelHeader = "Evalfleet-Model"
	// unsentHeader of an answer has the members of the request that the model does not take, and was not sent.
	unsentHeader = "Evalfleet-Unsent"
	// cacheStatus of an answer is set if it came from the response cache (RFC 9211).
	cacheStatus = "Cache-Status"
	// keyHeader is the key under which a call happens once.
	keyHeader = "Idempotency-Key"
)

// serve makes a handler: it knows the caller, counts, and turns failures into answers.
func (e *Endpoints) serve(route route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{
			start: time.Now(), format: route.format(r), request: r, out: httpdeadline.NewWriter(w, e.cfg.WriteTimeout), id: "req_" + resource.NewID(),
			triesAgain: e.cfg.MaxRetries > 0, project: r.Header.Get(projectHeader), account: r.Header.Get(accountHeader),
		}
		if x.project == "" {
			x.project = "default"
		}
		count := e.deps.Metrics.Begin(route.path)
		err := e.answer(r.Context(), route, x)
		took := time.Since(x.start)
		count(took.Seconds(), x.codeOf(err))
		e.log(r.Context(), x, err, took)
		if err == nil {
			return
		}
		if x.begun {
			panic(http.ErrAbortHandler) // The client must not mistake a partial answer for the whole.
		}
		x.refuse(err)
	}
}

// log logs a call, and always a fault of ours, since the client receives only the request id.
func (e *Endpoints) log(ctx context.Context, x *exchange, err error, took time.Duration) {
	level, code := slog.LevelDebug, x.codeOf(err)
	if code == codes.Internal.String() {
		level = slog.LevelError
	}
	if e.deps.Logger.Enabled(ctx, level) {
		e.deps.Logger.Log(ctx, level, "endpoint", "path", x.request.URL.Path, "code", code, "took", took, "request_id", x.id, "error", err)
	}
}

// answer serves a request. A panic is logged and becomes a failure.
func (e *Endpoints) answer(ctx context.Context, route route, x *exchange) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.deps.Logger.ErrorContext(ctx, "panic", "path", route.path, "request_id", x.id, "panic", p, "stack", string(debug.Stack()))
			err = rpcerr.Hidden(x.id)
		}
	}()
	ctx, err = auth.Admit(ctx, e.deps.Auth, auth.VendorToken(x.request))
	if err != nil {
		auth.Refuse(x.out)
		return err
	}
	if strings.EqualFold(x.request.Header.Get("Upgrade"), "websocket") {
		x.out.Header().Set("Upgrade", "HTTP/1.1")
		return refuse(http.StatusUpgradeRequired, "there are no websockets here ("+x.request.URL.Path+"); ask over HTTP")
	}
	if route.method != "" && x.request.Method != route.method {
		x.out.Header().Set("Allow", route.method)
		return refuse(http.StatusMethodNotAllowed, x.request.URL.Path+" takes "+route.method)
	}
	if _, err := resource.ParseProject(projectHeader, resource.Project(x.project)); err != nil {
		return err
	}
	ctx, end := e.deps.Traces.ServeHTTP(ctx, x.request, "modelgw", route.path)
	defer func() { end(x.failureOf(err)) }()
	return route.serve(ctx, x)
}

// failureOf is the code of a failure; empty for none.
func (x *exchange) failureOf(err error) string {
	if err == nil {
		return ""
	}
	return x.codeOf(err)
}

// begin sends the head of an answer of our own.
func (x *exchange) begin(status int, contentType string, length int) {
	h := x.out.Header()
	h.Set("Content-Type", contentType)
	h.Set(x.idHeader, x.id)
	if length >= 0 {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	x.begun = true
	x.out.WriteHeader(status)
}

// send answers with a JSON body.
func (x *exchange) send(status int, body []byte) error {
	x.begin(status, "application/json", len(body))
	_, err := x.out.Write(body)
	return err
}
