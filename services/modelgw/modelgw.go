// Package modelgw is the model gateway: it generates with any configured model, so that other services need neither the
// vendors' APIs nor their keys.
//
// Each call passes through the pipeline of internal/generate. A call with a key happens once: the ledger of effects
// stores its claim and its answer, and later calls with the key get that answer.
package modelgw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/pkg/webfetch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	batchmemory "github.com/evalfleet/evalfleet/services/modelgw/internal/batch/memory"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/call"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/endpoint"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prefixcache"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrock"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/google"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/grok"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mistral"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mockllm"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/sagemaker"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/server"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/settings"
)

// cancelGrace is the default of [Config.CancelGrace]. Connections of providers end within milliseconds.
const cancelGrace = time.Second

// saveGrace bounds the last save of what was spent, at the end of the process.
const saveGrace = 2 * time.Second

// countTimeout bounds one attempt to have tokens counted.
const countTimeout = 30 * time.Second

// Config sets the gateway up.
type Config struct {
	// AttemptTimeout bounds one attempt of a call whose configuration sets no bound. Zero, the default, is none. It
	// does not bound calls in batches.
	AttemptTimeout time.Duration `yaml:"attempt_timeout" env:"EVALFLEET_MODELGW_ATTEMPT_TIMEOUT"`
	// MaxWaiting bounds the calls that wait for the connections of one account; more are refused with
	// CONNECTION_QUEUE_FULL. Zero is no bound.
	MaxWaiting int `yaml:"max_waiting" env:"EVALFLEET_MODELGW_MAX_WAITING"`
	// AdaptiveRule is the rule by which limits of connections adapt. `recorded` is Inspect's: a refusal lowers the
	// limit by a fifth, and for 15 s nothing counts. `probing` remembers the limit that was refused last, stays just
	// below it and tries one connection more from time to time, so that more of the provider's capacity is used and
	// fewer calls are refused. A pool whose first call sets a cooldown, a decrease factor or a scale-up percentage
	// follows `recorded`, which has these settings. A pool in Redis keeps its rule until no replica has used it for a
	// day. Default: `probing` where replicas share limits through Redis, else `recorded`. With either rule calls wait
	// if a provider reports with its answers that few of its requests or tokens remain.
	AdaptiveRule string `yaml:"adaptive_rule" env:"EVALFLEET_MODELGW_ADAPTIVE_RULE"`
	// MaxAnswerBytes bounds an answer of a vendor that is decoded into the canonical form, in bytes as received,
	// streamed or not; a larger one ends with PROVIDER_RESPONSE_INVALID. Answers that the endpoints relay as bytes have
	// no bound, since they are not stored. Default 64 MiB.
	MaxAnswerBytes int64 `yaml:"max_answer_bytes" env:"EVALFLEET_MODELGW_MAX_ANSWER_BYTES"`
	// MaxAnswersBytes bounds what such answers hold together while they are read, beyond the first MiB of each. A
	// stream holds its content, any other answer all its bytes. An answer that finds no room is not read on until
	// others have ended; the oldest is always read. Default eight times MaxAnswerBytes.
	MaxAnswersBytes int64 `yaml:"max_answers_bytes" env:"EVALFLEET_MODELGW_MAX_ANSWERS_BYTES"`
	// MaxReissues bounds how often a call with a key is made again because the process that made it died. A graceful
	// stop does not count. A call that is lost more often has no known outcome, and its run waits for a decision. At
	// least 1, default 5.
	MaxReissues int `yaml:"max_reissues" env:"EVALFLEET_MODELGW_MAX_REISSUES"`
	// CancelGrace bounds how long the caller of a call that is cancelled waits for the account of it. Zero is 1s.
	CancelGrace time.Duration `yaml:"-"`
	// CacheBytes bounds the responses that are cached in the data directory; the least recently used ones are evicted.
	// The file is larger, by two thirds if responses are small. In Redis it bounds nothing but an entry, which has at
	// most 16 MiB: set the `maxmemory` of the server. Default 256 MiB.
	CacheBytes int64 `yaml:"cache_bytes" env:"EVALFLEET_MODELGW_CACHE_BYTES"`
	// Redis is what several replicas share: the response cache, and the limits of connections to providers.
	Redis RedisConfig `yaml:"redis"`
	// Budgets bound what may be spent, by scope: `projects/default`, `projects/default/evals/…`,
	// `accounts/openai/default`. Other scopes, and accounts that are not configured, are refused. What was spent counts
	// from the first call on, over restarts.
	Budgets map[string]Budget `yaml:"budgets"`
	// Prices are dollars per million tokens, by model such as `openai/gpt-4o`. They replace built-in prices, which
	// `evalfleet models` shows. Without a price the cost of a model is unknown, and the model is refused if a limit or
	// a budget bounds dollars.
	Prices map[string]Price `yaml:"prices"`
	// Models are facts of models, by model such as `openai/gpt-4o`. They replace built-in ones, fact by fact.
	Models map[string]modeldata.Facts `yaml:"models"`
	// Fallbacks are the models that answer in place of another one, by its name, in the order in which they are asked,
	// such as `openai/gpt-4o: [anthropic/claude-sonnet-4-5]`. They answer if its provider cannot be reached, is
	// overloaded, limits the rate, refuses the key or finds it spent, or is not configured. They use the account
	// `default` of their provider.
	Fallbacks map[string][]string `yaml:"fallbacks"`
	// EvaluationFallbacks allows fallbacks for calls on behalf of evaluations that do not ask for them: their results
	// are then those of several models.
	EvaluationFallbacks bool `yaml:"evaluation_fallbacks" env:"EVALFLEET_MODELGW_EVALUATION_FALLBACKS"`
	// Endpoints sets up the endpoints in the shapes of vendors.
	Endpoints endpoint.Config `yaml:"endpoints"`
	// Anthropic is Anthropic's API, with its accounts.
	Anthropic anthropic.Config `yaml:"anthropic"`
	// Bedrock is Amazon Bedrock, with its accounts.
	Bedrock bedrock.Config `yaml:"bedrock"`
	// Google is Google's Gemini API, with its accounts.
	Google google.Config `yaml:"google"`
	// Mistral is Mistral's API, with its accounts.
	Mistral mistral.Config `yaml:"mistral"`
	// Grok is xAI's API, with its accounts.
	Grok grok.Config `yaml:"grok"`
	// OpenAI is OpenAI's API, with its accounts.
	OpenAI openai.Config `yaml:"openai"`
	// OpenAIAPI are servers of others that speak OpenAI's format: models `openai-api/<service>/<model>`.
	OpenAIAPI openaicompat.Config `yaml:"openai_api"`
	// Services are known services that speak OpenAI's format, by name: models `<service>/<model>`.
	// docs/model-services.md lists them, with their variables. A service without a key or an address here and in
	// variables cannot be used.
	Services openaicompat.Services `yaml:"services"`
	// SageMaker is Amazon SageMaker, with its accounts.
	SageMaker sagemaker.Config `yaml:"sagemaker"`
	// Mockllm is the scripted model.
	Mockllm mockllm.Config `yaml:"mockllm"`
}

// Budget bounds what may be spent within a scope.
type Budget struct {
	// MaxTokens bounds tokens; leave it out for no bound.
	MaxTokens *int64 `yaml:"max_tokens"`
	// MaxCost bounds dollars. Models without a known price are then refused when they are called, and when an
	// evaluation of them is created: a budget names no models. If it is omitted, dollars are not bounded.
	MaxCost *float64 `yaml:"max_cost"`
}

const defaultCacheBytes = 256 << 20

// largeAnswers is how many answers of the largest size are read at a time by default.
const largeAnswers = 8

// The rules that [Config.AdaptiveRule] names.
const (
	ruleRecorded = "recorded"
	ruleProbing  = "probing"
)

// probing reports whether limits adapt by the rule `probing`.
func (c *Config) probing() bool {
	return c.AdaptiveRule == ruleProbing || c.AdaptiveRule == "" && len(c.Redis.Addresses) > 0
}

// SetDefaults sets the fields whose default is not zero.
func (c *Config) SetDefaults() {
	c.MaxAnswerBytes = cmp.Or(c.MaxAnswerBytes, provider.DefaultMaxAnswerBytes)
	c.MaxAnswersBytes = cmp.Or(c.MaxAnswersBytes, largeAnswers*c.MaxAnswerBytes)
	c.CacheBytes = cmp.Or(c.CacheBytes, defaultCacheBytes)
	c.MaxReissues = cmp.Or(c.MaxReissues, effect.DefaultMaxReissues)
}

// Validate refuses bounds out of range.
func (c *Config) Validate() error {
	var faults []error
	if c.AttemptTimeout < 0 {
		faults = append(faults, errors.New("attempt_timeout: must not be negative; leave it out for no bound"))
	}
	if c.MaxWaiting < 0 {
		faults = append(faults, errors.New("max_waiting: must not be negative; leave it out for no bound"))
	}
	if c.AdaptiveRule != "" && c.AdaptiveRule != ruleRecorded && c.AdaptiveRule != ruleProbing {
		faults = append(faults, fmt.Errorf("adaptive_rule: %q is no rule; write %s or %s", c.AdaptiveRule, ruleRecorded, ruleProbing))
	}
	if c.MaxAnswerBytes <= 0 {
		faults = append(faults, errors.New("max_answer_bytes: must be above 0"))
	}
	if c.MaxAnswersBytes <= 0 {
		faults = append(faults, errors.New("max_answers_bytes: must be above 0"))
	}
	if c.MaxReissues < 1 {
		faults = append(faults, errors.New("max_reissues: must be at least 1"))
	}
	if c.CacheBytes < 0 {
		faults = append(faults, errors.New("cache_bytes: must not be negative; 0 keeps nothing"))
	}
	faults = append(faults, priceFaults("prices.", c.Prices)...)
	faults = append(faults, c.Services.Validate())
	faults = append(faults, c.keyFaults()...)
	faults = append(faults, c.modelFaults()...)
	faults = append(faults, c.accountFaults()...)
	bases := c.baseURLs()
	for _, name := range slices.Sorted(maps.Keys(bases)) {
		switch u, err := url.Parse(bases[name]); {
		case bases[name] == "":
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			faults = append(faults, fmt.Errorf("%s: %q is no address; write http://host or https://host, with the path of the API", name, provider.ShownURL(bases[name])))
		case strings.ContainsAny(bases[name], "?#"): // The rest of a path would become part of it.
			faults = append(faults, fmt.Errorf("%s: %q has a query or a fragment; write the address with the path of the API alone", name, provider.ShownURL(bases[name])))
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(c.Budgets)) {
		faults = append(faults, c.budgetFault(scope))
	}
	return errors.Join(faults...)
}

// budgetFault is the error in the budget of a scope; nil if there is none.
func (c *Config) budgetFault(scope string) error {
	if err := budget.CheckScope(scope); err != nil {
		return fmt.Errorf("budgets: %w", err)
	}
	if known := c.accountScopes(); strings.HasPrefix(scope, resource.AccountPrefix) && !slices.Contains(known, scope) {
		return fmt.Errorf("budgets.%s: no such account is configured; known are %s", scope, strings.Join(known, ", "))
	}
	if key, err := budget.Bounds(c.Budgets[scope]).Check(); err != nil {
		return fmt.Errorf("budgets.%s.%s: %w", scope, key, err)
	}
	return nil
}

// Deps are the dependencies of the service.
type Deps struct {
	// Ledger keeps claims and answers of calls; it is the service's own.
	Ledger effect.Ledger
	// Owner names this process in the ledger, from its start to its end: no earlier or later process has the name.
	Owner string
	// Alive reports whether another owner in the ledger still runs; nil if this process has the ledger to itself.
	Alive func(ctx context.Context, owner string) (bool, error)
	// Batches keeps calls in batches; nil keeps them in memory, where they end with the process.
	Batches batch.Store
	// Budgets have the bounds of the configuration; nil keeps them in memory, where what was spent ends with the
	// process.
	Budgets *budget.Ledger
	// DataDir is the folder of the response cache; empty keeps it in memory, where it ends with the process.
	DataDir string
	// Idle leaves batches and budgets alone: the process only reads, and changes what it is asked to.
	Idle bool
	// Blobs reads a body of a project by its SHA-256 in hexadecimal digits; nil without a blob store. It fails with
	// [blob.ErrNotFound] and [blob.ErrInvalid].
	Blobs func(ctx context.Context, project, hash string) ([]byte, error)
	// Auth authenticates the callers of Handler; nil if that is not served.
	Auth auth.Authenticator
	// Metrics counts the calls of Handler; nil counts nowhere.
	Metrics *telemetry.CallMetrics
	// Traces makes spans of the calls of Handler; nil makes none.
	Traces *telemetry.Traces
	// Registerer takes the metrics of models; nil takes none.
	Registerer prometheus.Registerer
	// Logger logs. Prompts and outputs are never logged.
	Logger *slog.Logger
	// Own are the addresses at which the platform serves clients; an account that leads to one is refused.
	Own []string
}

// Service is the model gateway. It is safe for concurrent use.
type Service struct {
	server    *server.Server
	web       http.Handler
	effects   *effectrpc.Owner
	batches   *batch.Batcher
	idle      bool
	responses *generate.Cache
	registry  *provider.Registry
	settings  *settings.Current
	budgets   *budget.Ledger
	log       *slog.Logger

	// reloading is held while the configuration is replaced, and while all is closed, after which closed is set.
	reloading sync.Mutex
	closed    bool
	cfg       Config
	deps      Deps
	// closers end what the providers and stores have open: by vendor, of which a reload replaces some, and of the rest.
	vendorClosers map[string]func() error
	closers       []func() error
}

// New makes the service. Close ends it.
func New(cfg Config, deps Deps) (*Service, error) {
	s := &Service{
		registry: &provider.Registry{Logger: deps.Logger}, settings: settings.New(settingsOf(&cfg)),
		budgets: deps.Budgets, log: deps.Logger, cfg: cfg, deps: deps, idle: deps.Idle,
	}
	if s.budgets == nil {
		s.budgets = budget.New(bounds(cfg.Budgets))
	}
	if err := s.register(cfg, deps); err != nil {
		return nil, errors.Join(err, s.close())
	}
	cfg.warnOfIdentities(context.Background(), s.log)
	effects, err := effectrpc.New(effectrpc.Config{
		Service:     "modelgw",
		Ledger:      deps.Ledger,
		Owner:       deps.Owner,
		Alive:       deps.Alive,
		MaxReissues: cfg.MaxReissues,
		CancelGrace: cmp.Or(cfg.CancelGrace, cancelGrace),
		Logger:      deps.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.effects = effects
	var calls *call.Calls
	if deps.Batches == nil {
		deps.Batches = &batchmemory.Store{}
	}
	s.batches = batch.New(batch.Deps{
		Store: deps.Batches, Owner: deps.Owner, Alive: deps.Alive, Open: s.registry.Open, Logger: deps.Logger,
		Changed: func(key effect.Key, note *effectv1.Note) { calls.NoteBatched(key, note) },
	})
	batch.Measure(deps.Batches, deps.Registerer)
	stores, err := share(cfg, deps)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.closers = append(s.closers, stores.closers...)
	s.responses = generate.NewCache(stores.responses, deps.Logger)
	pools := generate.MeasurePools(stores.limiter, deps.Registerer)
	metrics := generate.NewMetrics(deps.Registerer)
	each := []generate.Stage{ // What every request to a provider has, also one that costs nothing.
		generate.Retry(retry.Default(), deps.Logger), generate.Credential(metrics, deps.Logger),
		generate.Admit(stores.limiter, pools, generate.Admission{MaxWaiting: cfg.MaxWaiting, Probing: cfg.probing()}),
	}
	stages := slices.Concat([]generate.Stage{generate.Measure(metrics), generate.Spend(s.budgets, s.settings.Prices)}, each)
	asking := slices.Concat(each, []generate.Stage{generate.Within(countTimeout)})
	attempt := generate.Chain(generate.Attempt(cfg.AttemptTimeout, generate.NewAnswers(cfg.MaxAnswerBytes, cfg.MaxAnswersBytes)), stages...)
	calls = call.New(call.Deps{
		Registry: s.registry,
		Pipeline: generate.Chain(attempt, s.responses.Stage, generate.Seal), // A stored answer keeps its sealer.
		Counting: generate.Chain(generate.Count, asking...),
		Effects:  effects,
		Batches:  s.batches,
		Budgets:  s.budgets,
		Settings: s.settings,
		Memory:   prefixcache.New(bound.KeptConversationBytes),
		Blobs:    deps.Blobs,
		Logger:   deps.Logger,
	})
	s.server = server.New(server.Deps{
		Registry: s.registry,
		Calls:    calls,
		Effects:  effects,
		Batches:  s.batches,
		Cache:    stores.responses,
		Limiter:  stores.limiter,
		Budgets:  s.budgets,
		Settings: s.settings,
	})
	var fetch endpoint.Fetcher
	if hosts := cfg.Endpoints.FetchMedia.Hosts; len(hosts) > 0 {
		fetch = webfetch.New(hosts)
	}
	s.web = endpoint.New(cfg.Endpoints, endpoint.Deps{
		Auth: deps.Auth, Registry: s.registry, Models: calls, Settings: s.settings, Fetch: fetch, Stages: stages, Asking: asking,
		AttemptTimeout: cfg.AttemptTimeout, Metrics: deps.Metrics, Traces: deps.Traces, Logger: deps.Logger,
	})
	return s, nil
}

// Handler serves models below the prefixes of internal/endpoint, in the shapes of vendors. It knows its callers itself.
func (s *Service) Handler() http.Handler { return s.web }

func bounds(configured map[string]Budget) map[string]budget.Bounds {
	all := map[string]budget.Bounds{}
	for scope, b := range configured {
		all[scope] = budget.Bounds(b)
	}
	return all
}

// Register offers the service's RPCs at a server.
func (s *Service) Register(registrar grpc.ServiceRegistrar) { s.server.Register(registrar) }

// Run forgets old answers, looks after batches and saves what is spent until ctx ends. It then returns nil.
func (s *Service) Run(ctx context.Context) error {
	var others sync.WaitGroup
	if !s.idle {
		others.Go(func() { s.batches.Run(ctx) })
		others.Go(func() { s.budgets.Run(ctx) })
	}
	s.effects.Sweep(ctx)
	s.batches.Stop() // What waits for a batch does not hold up a stop.
	others.Wait()
	return nil
}

// Close waits for calls in flight. When ctx ends first, the rest is cancelled, and calls with a key are left to their
// next caller. Calls that wait for batches end at once, if they have not ended with Run. The service then accepts no
// calls.
func (s *Service) Close(ctx context.Context) error {
	s.batches.Stop()
	err := s.effects.Drain(ctx)
	s.responses.Close()
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveGrace)
	defer cancel()
	return errors.Join(err, s.budgets.Save(saving), s.close())
}

func (s *Service) close() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.closed = true
	err := s.registry.Close()
	for _, name := range slices.Sorted(maps.Keys(s.vendorClosers)) {
		err = errors.Join(err, s.vendorClosers[name]())
	}
	for _, closer := range s.closers {
		err = errors.Join(err, closer())
	}
	return err
}
